"""Search, filters and order of the trajectories that a reader sees, page by page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl
from pydantic import Field, ValidationError

from extras.viewer.episodes import episodes_of, rows_with_text
from extras.viewer.runs import RunFolder
from kernels_eval.errors import InputError
from kernels_eval.expectations import refusal
from kernels_eval.frozen import FrozenModel

PAGE = 50
"""Trajectories on a page."""
Order = Literal["reward", "-reward", "return", "speedup", "problem"]
ORDERS: dict[Order, str] = {
    "reward": "highest reward",
    "-reward": "lowest reward",
    "return": "highest return",
    "speedup": "highest speed-up",
    "problem": "problem",
}


class Wanted(FrozenModel):
    """Filters of a reader; an empty one lets everything pass."""

    batch: str = ""
    """Key of a batch: a policy, or an iteration."""
    status: str = ""
    """Of the last turn's verdict."""
    category: str = ""
    """Category of the error, or the broken rule, of the last turn."""
    problem: str = ""
    agent: str = ""
    """Role of an agent that wrote one of the turns."""
    min_speedup: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Least speed-up of the best correct kernel."""
    text: str = Field(default="", max_length=200)
    """Part of a problem's or a trajectory's name, of a kernel or of an answer."""
    order: Order = "reward"
    page: int = Field(default=1, ge=1)


def wanted_of(given: Mapping[str, str]) -> Wanted:
    """Return the filters of a query; empty and unknown fields are left out. Raises InputError for wrong ones."""
    named = {name: value.strip() for name, value in given.items() if name in Wanted.model_fields and value.strip()}
    try:
        return Wanted.model_validate(named)
    except ValidationError as error:
        raise InputError(refusal(error)) from error


@dataclass(frozen=True)
class Selection:
    """A page of trajectories, and what the filters can be set to."""

    rows: list[dict[str, Any]]
    total: int
    page: int
    pages: int
    choices: dict[str, list[tuple[str, int]]]
    """`status`, `category`, `problem`, `agent`: values and numbers of trajectories in the chosen batches."""


def select(run: RunFolder, wanted: Wanted) -> Selection:
    """Return the trajectories of a run that a reader wants. Raises InputError for a batch that is not there."""
    if wanted.batch and wanted.batch not in run.batches:
        raise InputError(f"batch: found {wanted.batch[:60]!r}, expected one of {', '.join(run.batches) or 'none'}")
    batches = [run.batches[wanted.batch]] if wanted.batch else list(run.batches.values())
    frame = episodes_of(batches)
    choices = {
        "status": _counted(frame["status"]),
        "category": _counted(frame["category"]),
        "problem": _counted(frame["problem_id"], by_name=True),
        "agent": _counted(frame["roles"].list.unique().explode(), by_name=True),
    }
    for name, column in (("status", "status"), ("category", "category"), ("problem", "problem_id")):
        if value := getattr(wanted, name):
            frame = frame.filter(pl.col(column) == value)
    if wanted.agent:
        frame = frame.filter(pl.col("roles").list.contains(wanted.agent))
    if wanted.min_speedup is not None:
        frame = frame.filter(pl.col("best_speedup") >= wanted.min_speedup)
    if wanted.text:
        frame = _with_text(frame, run, wanted.text)
    pages = max(1, -(-frame.height // PAGE))
    page = min(wanted.page, pages)
    ordered = _ordered(frame, wanted.order).slice((page - 1) * PAGE, PAGE)
    return Selection(ordered.rows(named=True), frame.height, page, pages, choices)


def _with_text(frame: pl.DataFrame, run: RunFolder, text: str) -> pl.DataFrame:
    named = pl.any_horizontal(
        pl.col(name).str.to_lowercase().str.contains(text.lower(), literal=True)
        for name in ("problem_id", "trajectory_id")
    )
    found = [
        part.filter(
            named | (pl.col("rows").list.set_intersection(rows_with_text(run.batches[key], text)).list.len() > 0)
        )
        for (key,), part in frame.group_by("batch", maintain_order=True)
    ]
    return pl.concat(found) if found else frame


def _ordered(frame: pl.DataFrame, order: Order) -> pl.DataFrame:
    name = {
        "reward": "reward",
        "-reward": "reward",
        "return": "return",
        "speedup": "best_speedup",
        "problem": "problem_id",
    }
    falling = order not in ("-reward", "problem")
    keys = {name[order]: falling, "best_speedup": True, "batch": False, "trajectory_id": False}
    return frame.sort(*keys, descending=list(keys.values()), nulls_last=True)


def _counted(values: pl.Series, by_name: bool = False) -> list[tuple[str, int]]:
    pairs = [(str(value), int(count)) for value, count in values.drop_nulls().value_counts().iter_rows()]
    return sorted(pairs, key=lambda pair: (pair[0],) if by_name else (-pair[1], pair[0]))
