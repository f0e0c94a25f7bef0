"""Rows of problem tables: as read (`Row`), as loaded (`Entry`), as published (`ProblemRow`).

Columns that are read: `source` (or `code`), required; `problem_id`, `level` (default 1), `name`, `family`, `split`
(`train` | `heldout`), `tier` (of a held-out problem), `composition`, `reference_kernel`. Others are ignored. An integer
`problem_id` counts within its level, as in KernelBench's dataset, and becomes `level1_19_ReLU`.
"""

import re
from enum import StrEnum
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


SOURCE_COLUMNS = ("source", "code")
WANTED = frozenset(
    {*SOURCE_COLUMNS, "problem_id", "level", "name", "family", "split", "tier", "composition", "reference_kernel"}
)
# Problem ids become parts of file names.
_ID = re.compile(r"[^/\\\s\x00-\x1f]{1,200}")


def entry_of(row: Row) -> Entry:
    """Return the row's problem; InputError names the row, the column, what was found and what was expected."""
    source = text(row, *SOURCE_COLUMNS)
    if source is None:
        raise InputError(f"{row.where}: expected a column `source` or `code`; found {', '.join(row.found) or 'none'}")
    check_problem_source(source, row.where)
    level = _level(row)
    name = text(row, "name") or ""
    problem = Problem(problem_id="", source=source, level=level, name=name, family=text(row, "family") or "")
    return Entry(
        problem=problem.model_copy(update={"problem_id": _problem_id(row, problem)}),
        where=row.where,
        split=_one_of(Split, row, "split"),
        composition=text(row, "composition") or None,
        reference_kernel=text(row, "reference_kernel"),
        tier=_one_of(Tier, row, "tier") or Tier.STANDARD,
    )


def text(row: Row, *columns: str) -> str | None:
    """Return the first of the columns that is present and not null. Raises InputError if it holds no text."""
    for column in columns:
        value = row.values.get(column)
        if value is not None:
            if not isinstance(value, str):
                raise InputError(f"{row.where}: column `{column}`: expected text, found {shown(value)}")
            return value
    return None


def _problem_id(row: Row, problem: Problem) -> str:
    value = row.values.get("problem_id")
    if isinstance(value, int) and not isinstance(value, bool):
        numbered = problem.name.startswith(f"{value}_") or problem.name == str(value)
        suffix = problem.name if numbered else f"{value}_{problem.name}".rstrip("_")
        value = f"level{problem.level}_{suffix}"
    elif value is None:
        value = f"level{problem.level}_{problem.name}" if problem.name else f"problem_{problem.digest}"
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
    try:
        level = int(value) if isinstance(value, str) else value
    except ValueError:
        level = None
    if not isinstance(level, int) or isinstance(level, bool) or level < 1:
        raise InputError(f"{row.where}: column `level`: expected a whole number from 1, found {shown(value)}")
    return level


def _one_of(kind: type[_Kind], row: Row, column: str) -> _Kind | None:
    value = row.values.get(column)
    if value is None:
        return None
    if value not in tuple(kind):
        raise InputError(f"{row.where}: column `{column}`: expected {_listed(kind)}, found {shown(value)}")
    return kind(value)


def _listed(kind: type[StrEnum]) -> str:
    *others, last = (f"`{member}`" for member in kind)
    return f"{', '.join(others)} or {last}"


def shown(value: Any) -> str:
    """Return a value as error messages show it, shortened to 58 characters."""
    whole = repr(value)
    return whole if len(whole) <= 60 else f"{whole[:57]}…"
