"""Problems by policies: share of correct answers and best speed-up of each pair."""

import math
from typing import NamedTuple

import polars as pl

from extras.viewer.episodes import episodes_of
from extras.viewer.runs import Batch, Kind, RunFolder

ROWS = 100
"""Problems on a page."""
_STEPS = 10


class Cell(NamedTuple):
    """Answers of one policy to one problem."""

    answers: int
    """Without those that the machine failed."""
    passed: float | None
    """Share that ends with a correct kernel; None without answers."""
    speedup: float | None
    """Highest speed-up of a correct kernel; None if there is none."""
    timing_source: str | None
    heat: int | None
    """0 to 10, for the colour; None: no colour."""


class Grid(NamedTuple):
    """A page of the grid."""

    batches: list[Batch]
    rows: list[tuple[str, list[Cell | None]]]
    """Problem, and a cell of each batch; None where it was not asked."""
    problems: int
    page: int
    pages: int


def grid_of(run: RunFolder, kind: Kind, by_speed: bool, page: int = 1) -> Grid:
    """Return the grid of a run's batches of one kind, the least solved problems first.

    `by_speed`: colours stand for the speed-up (0.5 to 4 times, in equal ratios), else for the share of correct answers.
    """
    batches = [batch for batch in run.batches.values() if batch.kind == kind]
    frame = episodes_of(batches).filter(pl.col("reward").is_not_null())
    cells = frame.group_by("problem_id", "batch").agg(
        pl.len().alias("answers"),
        pl.col("correct").mean().alias("passed"),
        pl.col("best_speedup").max().alias("speedup"),
        pl.col("timing_source").drop_nulls().unique().sort().str.join(" and ").alias("source"),
    )
    problems = cells.group_by("problem_id").agg(pl.col("passed").mean()).sort("passed", "problem_id")["problem_id"]
    pages = max(1, -(-len(problems) // ROWS))
    page = min(page, pages)
    shown = problems.slice((page - 1) * ROWS, ROWS).to_list()
    found = {
        (row["problem_id"], row["batch"]): Cell(
            row["answers"], row["passed"], row["speedup"], row["source"] or None,
            _heat(row["passed"], row["speedup"], by_speed),
        )
        for row in cells.filter(pl.col("problem_id").is_in(shown)).iter_rows(named=True)
    }  # fmt: skip
    rows = [(problem, [found.get((problem, batch.key)) for batch in batches]) for problem in shown]
    return Grid(batches, rows, len(problems), page, pages)


def _heat(passed: float, speedup: float | None, by_speed: bool) -> int | None:
    if not by_speed:
        return round(_STEPS * passed)
    if speedup is None or speedup <= 0:
        return None
    return round(_STEPS * min(1.0, max(0.0, (math.log2(speedup) + 1) / 3)))
