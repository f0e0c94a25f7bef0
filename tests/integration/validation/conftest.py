"""Good tables, and a way to break one cell of them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest
from tasks.trajectories.schema import TRAJECTORIES_SCHEMA, TURNS_SCHEMA, Termination, Trajectory, Turn
from tasks.trajectories.writer import write_trajectories

GAMMA = 0.4
_FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="worker lost")
_WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
_BROKEN = Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error")


def _right(speedup: float) -> Verdict:
    return Verdict(
        status=Status.CORRECT,
        compiled=True,
        correct=True,
        speedup=speedup,
        candidate_ms=1.0,
        reference_ms=speedup,
        timing_source=TimingSource.ROOFLINE,
    )


EPISODES: list[tuple[list[tuple[Verdict, float | None]], Termination]] = [
    ([(_WRONG, 0.1), (_right(1.5), 0.8), (_right(1.0), 0.3)], Termination.TURN_LIMIT),
    ([(_right(3.0), 2.3)], Termination.SUCCESS),
    ([(_BROKEN, 0.0), (_BROKEN, 0.0)], Termination.REPEATED_FAILURE),
    ([(_WRONG, 0.1), (_FAULT, None)], Termination.INFRASTRUCTURE_ERROR),
]


def _turn(index: int, verdict: Verdict, reward: float | None) -> Turn:
    return Turn(
        turn_index=index,
        role=SOLVER,
        prompt_token_ids=(1, 2, 3),
        response_token_ids=(4, 5),
        response_logprobs=(-0.5, -1.5),
        prompt_extends_previous=True,
        finish_reason="stop",
        response_text="…",
        kernel_source="class ModelNew: ...",
        verdict=verdict,
        reward=reward,
        generation_s=0.1,
        evaluation_s=0.1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def good_batch(destination: Path, groups: int = 10, split: str = "train") -> TrajectoryBatchRef:
    """Publish `groups` groups of four trajectories (eight turns)."""
    trajectories = [
        Trajectory(
            run_id="r",
            iteration=0,
            policy_digest="p",
            problem_id=f"problem-{group}",
            problem_digest=f"digest-{group}",
            split=split,
            level=1,
            group_id=f"g{group}",
            trajectory_id=f"g{group}-{sample}",
            sample_index=sample,
            turns=tuple(_turn(index, verdict, reward) for index, (verdict, reward) in enumerate(steps)),
            termination=termination,
        )
        for group in range(groups)
        for sample, (steps, termination) in enumerate(EPISODES)
    ]
    return write_trajectories(trajectories, GAMMA, destination, {"policy": "p"})


Change = Callable[[list[dict[str, Any]]], object]


@pytest.fixture
def good(tmp_path: Path) -> TrajectoryBatchRef:
    """A batch with nothing wrong in it."""
    return good_batch(tmp_path / "good")


@pytest.fixture
def broken(tmp_path: Path) -> Callable[..., TrajectoryBatchRef]:
    """`broken(turns=change, trajectories=change)`: the good batch after a change of its rows."""

    def make(
        turns: Change | None = None, trajectories: Change | None = None, split: str = "train"
    ) -> TrajectoryBatchRef:
        base = good_batch(tmp_path / "base", split=split)
        with publish(tmp_path / "raw", {"policy": "p"}) as folder:
            for name, schema, change in (
                ("turns.parquet", TURNS_SCHEMA, turns),
                ("trajectories.parquet", TRAJECTORIES_SCHEMA, trajectories),
            ):
                table = pq.read_table(base.path / name)
                rows = table.to_pylist()
                if change is not None:
                    change(rows)
                pq.write_table(type(table).from_pylist(rows, schema=schema), folder / name)
        return base.model_copy(update={"uri": str(tmp_path / "raw"), "digest": published_digest(tmp_path / "raw")})

    return make


def publish_table(destination: Path, name: str, table: pl.DataFrame) -> dict[str, str]:
    """Publish one Parquet table and return uri and digest."""
    with publish(destination) as folder:
        table.write_parquet(folder / name)
    return {"uri": str(destination), "digest": published_digest(destination)}


@pytest.fixture(scope="session", name="publish_table")
def publish_table_fixture() -> Callable[[Path, str, pl.DataFrame], dict[str, str]]:
    """`publish_table(destination, name, table)`."""
    return publish_table
