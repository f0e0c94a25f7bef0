"""Places in tables of what a problem has: our columns under the names that other projects give them.

A place is a column, or a field of objects in one (`extra_info.level`), which may be JSON text. Of several places the
first that holds something is read. `problems.columns` names places that are not known here.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kernels_eval.errors import InputError
from tasks.problems.row import Row

SOURCES = (
    "source",
    "code",
    "pytorch_code",
    "ref_arch_src",
    "reference_code",
    "label",
    "reward_model.ground_truth",
    "PyTorch_Code_Module",
    "python_code",
)
"""Columns with a problem's source: ours, KernelBench's, of prompt sets for RL (slime's `label`, verl's
`reward_model`), Sakana AI's archive, KernelBook."""

PLACES: dict[str, tuple[str, ...]] = {
    "source": SOURCES,
    "problem_id": ("problem_id", "extra_info.problem_id", "Task_ID", "instance_id"),
    "level": ("level", "extra_info.level", "Level_ID"),
    "name": ("name", "problem_name", "extra_info.problem_name", "Op_Name"),
    "family": ("family", "category", "extra_info.category"),
    "split": ("split",),
    "tier": ("tier",),
    "composition": ("composition",),
    "reference_kernel": ("reference_kernel",),
    "entry_point": ("entry_point",),
}
"""Places of each of our columns, in the order in which they are tried."""


def check_columns(setting: str, columns: Mapping[str, str], known: Iterable[str]) -> None:
    """Raise InputError if a mapping, the value of `setting`, names a column that we do not have."""
    known = tuple(known)
    for name in columns:
        if name not in known:
            raise InputError(f"{setting}: expected our names {', '.join(known)}, each with theirs; found `{name}`")


def wanted_columns(places: Mapping[str, tuple[str, ...]], columns: Mapping[str, str]) -> frozenset[str]:
    """Return the columns that a table is read for; of a place with dots every beginning, as a name may have dots."""
    found = {place for known in places.values() for place in known} | set(columns.values())
    parts = [place.split(".") for place in found]
    return frozenset(".".join(part[: end + 1]) for part in parts for end in range(len(part)))


def placed(
    row: Row, places: Mapping[str, tuple[str, ...]], columns: Mapping[str, str], setting: str
) -> tuple[Row, dict[str, str]]:
    """Return the row with our columns, and where each of them was found.

    `columns`: their place of some of our columns, as the user gives them in `setting`. Raises InputError if the row has
    no such place.
    """
    values: dict[str, Any] = {}
    found: dict[str, str] = {}
    for name, known in places.items():
        given = columns.get(name)
        for place in known if given is None else (given,):
            value = _value(row.values, place)
            if value is not None:
                values[name], found[name] = value, place
                break
        else:
            if given is not None and given.split(".")[0] not in row.found and given not in row.found:
                raise InputError(
                    f"{row.where}: {setting}: expected a column `{given}` for {name}; found {', '.join(row.found)}"
                )
    return Row(row.where, values, row.found, found), found


def _value(values: Any, place: str) -> Any:
    """Return what is at a place; None if there is nothing."""
    if isinstance(values, str):
        try:
            values = json.loads(values)
        except (ValueError, RecursionError):
            return None
    if not isinstance(values, dict):
        return None
    if place in values:
        return values[place]
    column, dot, rest = place.partition(".")
    return _value(values.get(column), rest) if dot else None
