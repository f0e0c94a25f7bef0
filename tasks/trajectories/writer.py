"""Publishes finished trajectories as one partition of the data set: `trajectories.parquet` and `turns.parquet`.

Rows are sorted by trajectory and turn, whatever order episodes ended in. Returns are computed here; advantages are not
stored, the update computes them (tasks.update.advantages).
"""

import itertools
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest
from tasks.trajectories.content import TABLES
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import (
    EPISODE_COLUMNS,
    TRAJECTORIES_FILE,
    TRAJECTORIES_SCHEMA,
    TURNS_FILE,
    TURNS_SCHEMA,
    Trajectory,
    Turn,
    verdict_row,
)

_TURN_COLUMNS = tuple(field.name for field in fields(Turn))


def write_trajectories(
    trajectories: Sequence[Trajectory],
    gamma: float,
    destination: Path,
    metadata: dict[str, Any] | None = None,
) -> TrajectoryBatchRef:
    """Publish the trajectories of one run and iteration at `destination`; `metadata` goes into the manifest.

    Raises InputError if there are none, they are of several iterations, or a trajectory_id occurs twice.
    """
    ordered = sorted(trajectories, key=lambda trajectory: trajectory.trajectory_id)
    _check(ordered)
    turns = _turn_rows(ordered, gamma)
    with publish(destination, dict(metadata or {}), TABLES) as folder:
        pq.write_table(pa.Table.from_pylist(turns, schema=TURNS_SCHEMA), folder / TURNS_FILE, compression="zstd")
        rows = [_trajectory_row(trajectory, gamma) for trajectory in ordered]
        table = pa.Table.from_pylist(rows, schema=TRAJECTORIES_SCHEMA)
        pq.write_table(table, folder / TRAJECTORIES_FILE, compression="zstd")
    return TrajectoryBatchRef(
        uri=str(destination.resolve()),
        digest=published_digest(destination),
        run_id=ordered[0].run_id,
        iteration=ordered[0].iteration,
        trajectories=len(ordered),
        turns=len(turns),
    )


def _check(ordered: Sequence[Trajectory]) -> None:
    if not ordered:
        raise InputError("trajectories: expected at least one, found none")
    partitions = {(trajectory.run_id, trajectory.iteration) for trajectory in ordered}
    if len(partitions) > 1:
        raise InputError(f"trajectories: expected those of one run and iteration, found {sorted(partitions)}")
    for previous, following in itertools.pairwise(ordered):
        if previous.trajectory_id == following.trajectory_id:
            raise InputError(f"trajectories: {following.trajectory_id} is there twice")


def _turn_rows(ordered: Sequence[Trajectory], gamma: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for trajectory in ordered:
        episode = _columns(trajectory, EPISODE_COLUMNS) | {"termination": trajectory.termination.value}
        rows += [
            episode
            | _columns(turn, _TURN_COLUMNS)
            | {"policy_digest": turn.policy_digest or trajectory.policy_digest}
            | {"verdict": verdict_row(turn.verdict), "return": value}
            for turn, value in zip(trajectory.turns, turn_returns(trajectory.rewards, gamma), strict=True)
        ]
    return rows


def _trajectory_row(trajectory: Trajectory, gamma: float) -> dict[str, Any]:
    last = trajectory.turns[-1]
    return _columns(trajectory, EPISODE_COLUMNS) | {
        "level": trajectory.level,
        "turns": len(trajectory.turns),
        "termination": trajectory.termination.value,
        "final_verdict": verdict_row(last.verdict),
        "final_reward": last.reward,
        "return": turn_returns(trajectory.rewards, gamma)[0],
        "created_at": last.created_at,
    }


def _columns(record: Trajectory | Turn, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}
