"""Result of one check of `kernelmill verify`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError


class Outcome(StrEnum):
    """Outcome of a check."""

    OK = "ok"
    """As expected."""
    NOTE = "note"
    """Not ideal, or not needed by this configuration: a run works."""
    FAILED = "failed"
    """A run of this configuration would fail."""


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one check, with what was found."""

    name: str
    outcome: Outcome
    found: str
    fix: str = ""
    """Remedy; empty if nothing has to be done."""


def ok(name: str, found: str) -> CheckResult:
    """Return a result with outcome OK."""
    return CheckResult(name, Outcome.OK, found)


def note(name: str, found: str, fix: str = "") -> CheckResult:
    """Return a result with outcome NOTE."""
    return CheckResult(name, Outcome.NOTE, found, fix)


def failed(name: str, found: str, fix: str) -> CheckResult:
    """Return a result with outcome FAILED; `fix` is the remedy."""
    return CheckResult(name, Outcome.FAILED, found, fix)


def checked(name: str, check: Callable[[RunConfig], object], config: RunConfig, found: str, fix: str) -> CheckResult:
    """Return the result of a check that raises InputError; `found`: the text if it passes, with what it returns."""
    try:
        more = check(config)
    except InputError as error:
        return failed(name, str(error), fix)
    return ok(name, f"{found}: {more}" if more else found)
