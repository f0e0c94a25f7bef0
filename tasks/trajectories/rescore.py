"""Scores stored trajectories with another reward: rewards and returns are computed again, into a new data set.

Nothing is judged or generated again, and the old data set stays as it is. Episodes stay as they were played: one that ended on
success or repeated failure ended by the reward of that time. The new manifest has the old metadata, `episode.reward` and
`episode.gamma` changed, and `rescored_from`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.rewards import Answer, reward_bounds, reward_of
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import MANIFEST, read_manifest
from tasks.trajectories.rows import load_trajectories
from tasks.trajectories.schema import Trajectory
from tasks.trajectories.writer import write_trajectories


def rescore(folder: Path, reward: str, destination: Path, gamma: float | None = None) -> TrajectoryBatchRef:
    """Publish the batch in `folder` with this reward at `destination`, where nothing may be yet.

    `gamma`: discount of the returns; None: the one that the batch was made with. Raises InputError for an unknown reward, a
    batch that cannot be read or does not say its discount, or a destination that is taken.
    """
    reward_bounds(reward)  # an unknown name is refused before anything is read
    if destination.exists():
        raise InputError(f"{destination}: is there already; a data set is never changed in place")
    manifest = read_manifest(folder)
    if manifest is None:
        raise InputError(f"{folder}: expected a published data set with a {MANIFEST}, found none")
    metadata: dict[str, Any] = dict(manifest.get("metadata") or {})
    episode: dict[str, Any] = dict(metadata.get("episode") or {})
    discount = episode.get("gamma") if gamma is None else gamma
    if discount is None:
        raise InputError(
            f"{folder / MANIFEST}: expected the discount of its returns (metadata.episode.gamma), found none; name one (--gamma)"
        )
    discount = float(discount)
    metadata |= {
        "episode": episode | {"reward": reward, "gamma": discount},
        "rescored_from": {"uri": str(folder.resolve()), "digest": manifest["digest"]},
    }
    return write_trajectories(rescored(load_trajectories(folder), reward), discount, destination, metadata)


def rescored(trajectories: Sequence[Trajectory], reward: str) -> list[Trajectory]:
    """Return the trajectories with every turn's reward computed from its verdict and answer; faults stay without one."""
    return [
        replace(
            trajectory,
            turns=tuple(
                turn
                if turn.verdict.is_fault
                else replace(
                    turn,
                    reward=reward_of(reward, turn.verdict, Answer(turn.response_text, len(turn.response_token_ids))),
                )
                for turn in trajectory.turns
            ),
        )
        for trajectory in trajectories
    ]
