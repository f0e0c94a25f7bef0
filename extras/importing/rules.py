"""Rules from another trainer's settings to ours: a foreign name, what it gives, and what differs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernels_eval.errors import InputError

Values = Mapping[str, Any]
"""Settings as they were read, by foreign name: texts of a script, or what YAML made of them."""


class Line(NamedTuple):
    """One of our settings, and where it comes from."""

    setting: str
    value: Any
    remark: str


Rule = Callable[[str, Any], list[Line]]
"""Function of the foreign name and its value."""


@dataclass(frozen=True)
class Trainer:
    """A trainer whose settings are known."""

    name: str
    rules: Mapping[str, Rule]
    needless: Mapping[str, str]
    """Foreign names that need no setting here, with the reason."""
    derived: Callable[[Values], list[Line]]
    """Settings that follow from several foreign ones, or from a default of the trainer that ours differs from."""
    used: Sequence[str] = ()
    """Foreign names that `derived` reads."""
    prefixes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Beginnings of foreign names that need no setting here, with the reason."""


def rule(setting: str, kind: Callable[[str, Any], Any], remark: str = "") -> Rule:
    """Return the rule that one foreign value is one of our settings; `kind` reads it."""

    def lines(name: str, value: Any) -> list[Line]:
        return [Line(setting, kind(name, value), f"{name}{f': {remark}' if remark else ''}")]

    return lines


def number(name: str, value: Any) -> float:
    """Return a number. Raises InputError naming the foreign setting."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{name}: found {value!r}, expected a number")
    return found


def whole(name: str, value: Any) -> int:
    """Return a whole number. Raises InputError naming the foreign setting."""
    found = number(name, value)
    if not found.is_integer():
        raise InputError(f"{name}: found {value!r}, expected a whole number")
    return int(found)


def text(name: str, value: Any) -> str:
    """Return a text. Raises InputError naming the foreign setting."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str) or not value:
        raise InputError(f"{name}: found {value!r}, expected a text")
    return value


def truth(name: str, value: Any) -> bool:
    """Return a truth: of a script a flag alone is true. Raises InputError naming the foreign setting."""
    known = {"true": True, "false": False, "1": True, "0": False, "": True}
    found = value if isinstance(value, bool) else known.get(str(value).lower())
    if found is None:
        raise InputError(f"{name}: found {value!r}, expected true or false")
    return found


def one_of(known: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    """Return a reader of names. It raises InputError for another name."""

    def read(name: str, value: Any) -> Any:
        if str(value) not in known:
            raise InputError(f"{name}: found {value!r}, expected one of {', '.join(known)}")
        return known[str(value)]

    return read


def problems_from(setting: str, where: str, path: str) -> list[Line]:
    """Return the settings of a file of prompts; `setting`: `""` or `heldout_`, as in `problems.heldout_path`."""
    form = "parquet" if path.endswith(".parquet") else "jsonl"
    remark = "its column with the problem's source is read; the prompt is written by rollout.episode"
    return [
        Line(f"problems.{setting}source", form, where),
        Line(f"problems.{setting}path", path, f"{where}: {remark}"),
    ]
