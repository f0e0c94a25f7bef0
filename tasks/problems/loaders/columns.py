"""What the columns of a table of problems mean: ours (`problems.parquet`) and those of KernelBench's dataset.

Needed: `source` (or `code`). Optional: `problem_id`, `level` (1 where there is none), `name`, `family`, `split`
(`train` | `heldout`), `composition`, `reference_kernel`. Other columns are ignored. An integer `problem_id` counts within
its level, as in KernelBench's dataset, and becomes `level1_19_ReLU`.
"""

import re
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem, check_problem_source
from tasks.problems.loaders.entry import Entry, Row
from tasks.problems.row import Split

SOURCE_COLUMNS = ("source", "code")
WANTED = frozenset(
    {*SOURCE_COLUMNS, "problem_id", "level", "name", "family", "split", "composition", "reference_kernel"}
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
        split=_split(row),
        composition=text(row, "composition") or None,
        reference_kernel=text(row, "reference_kernel"),
    )


def text(row: Row, *columns: str) -> str | None:
    """Return the first of the columns that is there and not null; InputError where it holds no text."""
    for column in columns:
        value = row.values.get(column)
        if value is not None:
            if not isinstance(value, str):
                raise InputError(f"{row.where}: column `{column}`: expected text, found {_shown(value)}")
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
            f"{row.where}: problem_id: expected a number or up to 200 characters without spaces and slashes, found {_shown(value)}"
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
        raise InputError(f"{row.where}: column `level`: expected a whole number from 1, found {_shown(value)}")
    return level


def _split(row: Row) -> Split | None:
    value = row.values.get("split")
    if value is None:
        return None
    if value not in tuple(Split):
        raise InputError(f"{row.where}: column `split`: expected `train` or `heldout`, found {_shown(value)}")
    return Split(value)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}…"
