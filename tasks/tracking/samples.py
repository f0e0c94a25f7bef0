"""Kernels of a rollout to look at: a few turns, from the best of the batch to the worst."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from tasks.pipeline.references import TrajectoryBatchRef
from tasks.trajectories.reader import read_turns

COLUMNS = ("problem", "sample", "turn", "status", "cause", "speed-up", "reward", "kernel")
SAMPLES = 8
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class SampleTable:
    """Rows of COLUMNS."""

    rows: list[list[Any]]


def sample_table(batch: TrajectoryBatchRef) -> SampleTable:
    """Return `SAMPLES` turns of a batch at most, evenly spaced from the highest reward to the lowest.

    Turns in which the machine failed are left out. Raises InputError if the batch cannot be read.
    """
    turns = read_turns(batch).filter(pl.col("reward").is_not_null())
    ordered = turns.sort("reward", "trajectory_id", "turn_index", descending=[True, False, False])
    chosen = min(SAMPLES, len(ordered))
    places = [place * (len(ordered) - 1) // max(chosen - 1, 1) for place in range(chosen)]
    return SampleTable([_row(ordered.row(place, named=True)) for place in places])


def _row(turn: dict[str, Any]) -> list[Any]:
    verdict = turn["verdict"]
    return [
        turn["problem_id"],
        turn["sample_index"],
        turn["turn_index"],
        verdict["status"],
        verdict["rejection_reason"] or verdict["error_category"],
        verdict["speedup"],
        turn["reward"],
        (turn["kernel_source"] or turn["response_text"])[:_MOST_CHARACTERS],
    ]
