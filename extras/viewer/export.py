"""Static export: one HTML file with the overview, each run's grid, and its most telling answers. It asks for nothing.

A content security policy in the file lets its own style and script run, named by a nonce, and nothing else: a kernel
that got out of its place could do nothing. The script filters the tables; without it everything is shown.
"""

import secrets
from pathlib import Path
from typing import Any

import polars as pl

from extras.viewer import pages
from extras.viewer.answer import read_answer
from extras.viewer.episodes import episodes_of
from extras.viewer.grid import Grid, grid_of
from extras.viewer.runs import RunFolder, find_runs
from tasks.pipeline.store import write_atomically


def write_page(path: Path, file: Path, answers: int, prefect: str | None = None) -> int:
    """Write the page of the runs at `path`; return the number of answers in it, of each run `answers` at most.

    They are of the newest policy: of each problem the best answer, then of each the worst. Raises InputError if there
    is no run, or a table is damaged.
    """
    runs = find_runs(path)
    nonce = secrets.token_urlsafe(16)
    site = pages.Site(links=lambda page, /, **query: _anchor(page, query), prefect=prefect, nonce=nonce)
    sections = [_section(run, answers) for run in runs.values()]
    write_atomically(file, pages.whole_page(site, runs, sections))
    return sum(len(section["answers"]) for section in sections)


def _section(run: RunFolder, most: int) -> dict[str, Any]:
    batch = run.newest
    rows = [] if batch is None else _telling(episodes_of([batch]), most)
    return {
        "run": run,
        "batch": batch,
        "grid": Grid([], [], 0, 1, 1) if batch is None else grid_of(run, batch.kind, by_speed=False),
        "rows": rows,
        "answers": [] if batch is None else [read_answer(run, batch, row["trajectory_id"]) for row in rows],
        "curves": pages.curves_of([run]),
    }


def _telling(episodes: pl.DataFrame, most: int) -> list[dict[str, Any]]:
    """Return rows of at most `most` trajectories, the highest reward first."""
    ordered = episodes.sort("reward", "best_speedup", "trajectory_id", descending=[True, True, False], nulls_last=True)
    best = ordered.unique("problem_id", keep="first", maintain_order=True)
    worst = ordered.unique("problem_id", keep="last", maintain_order=True).reverse()
    chosen = pl.concat([best, worst]).unique("trajectory_id", keep="first", maintain_order=True).head(most)
    shown = ordered.filter(pl.col("trajectory_id").is_in(chosen["trajectory_id"].to_list()))
    return shown.with_columns(pl.lit("").alias("batch")).rows(named=True)


def _anchor(page: str, query: dict[str, object]) -> str | None:
    """Return the place in the file of a run or an answer; None for what is not in it."""
    if page == "run":
        return f"#{pages.anchor_of('run', query['run'])}"
    if page == "answer":
        return f"#{pages.anchor_of('answer', query['run'], query['id'])}"
    return None
