"""What a loader yields: one problem, where it stands, and what its source says of it."""

from typing import Any, NamedTuple

from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem
from tasks.problems.row import Split


class Row(NamedTuple):
    """One row of a table, before anything is known of its meaning."""

    where: str
    """File and line or row, as error messages name it."""
    values: dict[str, Any]
    """The wanted columns that are there."""
    found: tuple[str, ...]
    """Every column that is there, for error messages."""


class Entry(FrozenModel):
    """A problem as loaded, before it has a place in a split."""

    problem: Problem
    where: str
    """File and line or row, as error messages name it."""
    split: Split | None = None
    """The split that the source gives; None: the problem set decides."""
    composition: str | None = None
    """The composition that the source gives; None: the problem set derives it."""
    reference_kernel: str | None = None
