"""Great Expectations suites as files: every rule is written there, and nowhere else.

A suite is JSON as Great Expectations stores it: `name`, and `expectations` with `type`, `kwargs`, `notes` (the rule in
words) and optionally `severity` (`critical` stops or quarantines; `warning` and `info` only show in Data Docs). A value
`{"$PARAMETER": "maximum_reward"}` is filled in from the run's settings. The suites that ship with kernelmill are in
`suites/`; the configuration can name a folder of edited copies (files that it lacks are taken from here).
"""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from kernels_eval.errors import InputError
from kernels_eval.expectations import refusal
from kernels_eval.rewards import reward_bounds

SHIPPED_SUITES = Path(__file__).parent / "suites"
SUITE_NAMES = ("problems", "sft_pairs", "trajectories", "turns", "groups", "update_metrics")


class Expectation(BaseModel):
    """One rule."""

    # Great Expectations writes further keys (ids, rendered text) into a suite that it has stored.
    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    kwargs: dict[str, Any]
    notes: str | list[str] | None = None
    severity: Literal["critical", "warning", "info"] = "critical"

    @property
    def column(self) -> str:
        """Its column or columns; `-` for the whole table."""
        named = [self.kwargs.get(key) for key in ("column", "column_A", "column_B")]
        columns = [str(name) for name in named if name] or [str(name) for name in self.kwargs.get("column_list", [])]
        return ", ".join(columns) or "-"

    @property
    def meaning(self) -> str:
        """The rule in words, or else its arguments."""
        words = " ".join(self.notes) if isinstance(self.notes, list) else self.notes
        return words.strip().rstrip(".") if words else self.bounds

    @property
    def bounds(self) -> str:
        """The arguments other than the columns, e.g. `min_value=0, max_value=2.3`."""
        arguments = {key: value for key, value in self.kwargs.items() if not key.startswith("column")}
        return ", ".join(f"{key}={value}" for key, value in arguments.items()) or "to hold"


class Suite(BaseModel):
    """A named list of rules about one projection."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    expectations: tuple[Expectation, ...]


def load_suite(name: str, edited: str | None, parameters: dict[str, Any] | None = None) -> Suite:
    """Return a suite with its parameters filled in: from the folder `edited` if it has it, else the shipped one."""
    path = SHIPPED_SUITES / f"{name}.json"
    if edited is not None:
        if not Path(edited).is_dir():
            raise InputError(f"validation.suites: expected a folder of suites, found nothing at {edited}")
        own = Path(edited) / f"{name}.json"
        path = own if own.exists() else path
    try:
        suite = Suite.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: expected a Great Expectations suite in JSON: {error}") from error
    except ValidationError as error:
        raise InputError(f"{path}: expected a Great Expectations suite; {refusal(error)}") from error
    filled = tuple(
        rule.model_copy(update={"kwargs": _filled(rule.kwargs, parameters or {}, path)}) for rule in suite.expectations
    )
    return suite.model_copy(update={"expectations": filled})


def _filled(kwargs: dict[str, Any], parameters: dict[str, Any], path: Path) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for key, value in kwargs.items():
        if isinstance(value, dict) and "$PARAMETER" in value:
            wanted = str(value["$PARAMETER"])  # pyright: ignore[reportUnknownArgumentType]
            if wanted not in parameters:
                known = ", ".join(sorted(parameters)) or "none"
                raise InputError(f"{path}: {key}: unknown parameter {wanted!r}; known here: {known}")
            filled[key] = parameters[wanted]
        else:
            filled[key] = value
    return filled


_ROUNDING = 1e-9
_UNBOUNDED = 1e12


def reward_range(reward: str) -> dict[str, float]:
    """Return `minimum_reward` and `maximum_reward` of the registered function, the parameters of the suites."""
    lowest, highest = reward_bounds(reward)
    # Great Expectations writes its rules as JSON, which has no infinity.
    return {
        "minimum_reward": max(lowest, -_UNBOUNDED) - _ROUNDING,
        "maximum_reward": min(highest, _UNBOUNDED) + _ROUNDING,
    }


class Check(NamedTuple):
    """A suite and the projection to run it on."""

    data: str
    """`raw` or `published`: names the data in Data Docs."""
    suite: Suite
    projection: pl.DataFrame
    """Has a column `row_id`; nulls instead of NaN, no nested columns."""


class Finding(NamedTuple):
    """An expectation that does not hold."""

    check: Check
    expectation: Expectation
    found: str
    places: tuple[int, ...] = ()
    """Places in the projection of the rows that break it; none if it is a property of the batch."""

    @property
    def suite(self) -> str:
        """Name of the suite."""
        return self.check.suite.name

    @property
    def example(self) -> str:
        """The `row_id` of a row that breaks it, or `-`."""
        if not self.places or "row_id" not in self.check.projection.columns:
            return "-"
        return str(self.check.projection.get_column("row_id")[self.places[0]])
