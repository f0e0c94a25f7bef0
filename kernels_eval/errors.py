"""Exceptions: input that a person has to correct, and failures of the machine.

A bad kernel is data: it becomes a verdict. Every exception carries one sentence and can be pickled, since it crosses
processes.
"""

import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar


class KernelmillError(Exception):
    """Root of the hierarchy; the message names what was found and what was expected."""

    can_heal: ClassVar[bool] = False
    """True if the same work can succeed on a retry."""


class InputError(KernelmillError):
    """Bad input: a file, a field or a setting. Never retried; the command line exits with 2."""

    heading = "refused"
    """Title of a page about it."""

    @property
    def summary(self) -> str:
        """A few words on it, for a list."""
        return self.heading

    def markdown(self) -> str:
        """Return the body of a page about it."""
        return str(self)


class InfrastructureError(KernelmillError):
    """The machine failed, not the input: a dead worker, a lost server. Can succeed on retry."""

    can_heal = True


def first_line(error: BaseException | None) -> str:
    """Return the first line of an exception's message; the name of its type if it has no message."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, for the user whose code it was: `(file, line 3)`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"({last.filename}, line {last.lineno})"


@contextmanager
def one_cause() -> Generator[None]:
    """Raise, instead of a group of exceptions, the first of it that is no group itself: what a TaskGroup failed for."""
    try:
        yield
    except BaseExceptionGroup as failed:
        raise _first_cause(failed) from failed


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first
