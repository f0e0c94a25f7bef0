"""Rows of problem tables: as read (`Row`), as loaded (`Entry`), as published (`ProblemRow`).

Columns that are read: `source`, required; `problem_id`, `level` (default 1), `name`, `family`, `split`
(`train` | `heldout`), `tier` (of a held-out problem), `composition`, `reference_kernel`, `entry_point` (KernelBook's
name for the class). Others are ignored. Other names of the columns: tasks.problems.places. A number as `problem_id`
counts within its level, as in KernelBench's dataset, and becomes `level1_19_ReLU`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem, check_problem_source

_Kind = TypeVar("_Kind", bound=StrEnum)


class Split(StrEnum):
    """Side of a problem: for training or for measuring."""

    TRAIN = "train"
    """SFT and RL use these."""
    HELDOUT = "heldout"
    """Measured, never trained on."""


class Tier(StrEnum):
    """Kind of a held-out problem."""

    STANDARD = "standard"
    """As the training problems are: their lengths, pairs of operators and shapes. The main figures are on these."""
    LONGER = "longer"
    """More operators than any training problem has."""
    NEW_PAIRS = "new_pairs"
    """Two operators follow each other that do so in no training problem."""
    NEW_SHAPES = "new_shapes"
    """Shapes that no training problem has."""


class ProblemRow(FrozenModel):
    """A problem in its set."""

    problem: Problem
    split: Split
    composition: str = ""
    """Decides the split. Generated: the operator sequence, e.g. `linear>relu>softmax`. Loaded: as its source says,
    or the digest of its fingerprint (tasks.problems.contamination)."""
    reference_kernel: str | None = None
    """A kernel known to solve it, if any."""
    tier: Tier = Tier.STANDARD


class Row(NamedTuple):
    """One row of a table as it was read."""

    where: str
    """File and line or row, as error messages name it."""
    values: dict[str, Any]
    """The wanted columns that are there."""
    found: tuple[str, ...]
    """Every column that is there, for error messages."""
    places: Mapping[str, str] = MappingProxyType({})
    """Names in the file of columns that have other names here, for error messages."""

    def named(self, column: str) -> str:
        """Return a column as error messages name it."""
        return f"column `{self.places.get(column, column)}`"


class Entry(FrozenModel):
    """A problem as loaded, before the split."""

    problem: Problem
    where: str
    """File and line or row, as error messages name it."""
    split: Split | None = None
    """The split that the source gives; None: the problem set decides."""
    composition: str | None = None
    """The composition that the source gives; None: the problem set derives it."""
    reference_kernel: str | None = None
    tier: Tier = Tier.STANDARD


# Problem ids become parts of file names.
_ID = re.compile(r"[^/\\\s\x00-\x1f]{1,200}")
_NOT_IN_IDS = re.compile(r"[/\\\s\x00-\x1f]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_MEASURED = ("test", "validation", "val", "valid", "dev", "eval")
"""Others' names of the split that is measured."""
_LEVEL = re.compile(r"(?:level|lv|l)?[ _-]?(\d{1,9})", re.IGNORECASE)


def entry_of(row: Row) -> Entry:
    """Return the row's problem; InputError names the row, the column, what was found and what was expected.

    The row's columns are ours (tasks.problems.places).
    """
    source = text(row, "source")
    assert source is not None, "rows without a source are left out before"
    check_problem_source(source, row.where)
    level = _level(row)
    name = text(row, "name") or ""
    problem = Problem(problem_id="", source=source, level=level, name=name, family=text(row, "family") or "")
    return Entry(
        problem=problem.model_copy(update={"problem_id": _problem_id(row, problem)}),
        where=row.where,
        split=_split(row),
        composition=text(row, "composition") or None,
        reference_kernel=text(row, "reference_kernel"),
        tier=_one_of(Tier, row, "tier") or Tier.STANDARD,
    )


def derived_id(text: str) -> str:
    """Return an id made of a name that may have spaces and slashes, which ids do not have."""
    return _NOT_IN_IDS.sub("_", text)[:200]


def text(row: Row, *columns: str) -> str | None:
    """Return the first of the columns that is present and not null. Raises InputError if it holds no text."""
    for column in columns:
        value = row.values.get(column)
        if value is not None:
            if not isinstance(value, str):
                raise InputError(f"{row.where}: {row.named(column)}: expected text, found {shown(value)}")
            return value
    return None


def _problem_id(row: Row, problem: Problem) -> str:
    value = row.values.get("problem_id")
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        numbered = problem.name.startswith(f"{value}_") or problem.name == str(value)
        suffix = problem.name if numbered else f"{value}_{problem.name}".rstrip("_")
        value = derived_id(f"level{problem.level}_{suffix}")
    elif value is None:
        value = derived_id(f"level{problem.level}_{problem.name}") if problem.name else f"problem_{problem.digest}"
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InputError(
            f"{row.where}: problem_id: expected a number or up to 200 characters without spaces and slashes, "
            f"found {shown(value)}"
        )
    return value


def _level(row: Row) -> int:
    value = row.values.get("level")
    if value is None:
        return 1
    match = _LEVEL.fullmatch(value.strip()) if isinstance(value, str) else None
    level = int(match[1]) if match else value
    if not isinstance(level, int) or isinstance(level, bool) or level < 1:
        raise InputError(f"{row.where}: {row.named('level')}: expected a whole number from 1, found {shown(value)}")
    return level


def _split(row: Row) -> Split | None:
    return Split.HELDOUT if row.values.get("split") in _MEASURED else _one_of(Split, row, "split")


def _one_of(kind: type[_Kind], row: Row, column: str) -> _Kind | None:
    value = row.values.get(column)
    if value is None:
        return None
    if value not in tuple(kind):
        raise InputError(f"{row.where}: {row.named(column)}: expected {_listed(kind)}, found {shown(value)}")
    return kind(value)


def _listed(kind: type[StrEnum]) -> str:
    *others, last = (f"`{member}`" for member in kind)
    return f"{', '.join(others)} or {last}"


def shown(value: Any) -> str:
    """Return a value as error messages show it, shortened to 58 characters."""
    whole = repr(value)
    return whole if len(whole) <= 60 else f"{whole[:57]}…"
