"""What one check found."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    """As it should be."""
    NOTE = "note"
    """Not as it could be, or not needed by this configuration: a run works."""
    FAILED = "failed"
    """A run of this configuration would not work."""


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    name: str
    outcome: Outcome
    found: str
    fix: str = ""
    """What to do; empty where nothing has to be done."""


def ok(name: str, found: str) -> Finding:
    """As it should be."""
    return Finding(name, Outcome.OK, found)


def note(name: str, found: str, fix: str = "") -> Finding:
    """A run works all the same."""
    return Finding(name, Outcome.NOTE, found, fix)


def failed(name: str, found: str, fix: str) -> Finding:
    """A run would not work; `fix` says what to do."""
    return Finding(name, Outcome.FAILED, found, fix)
