"""Rows and files that give nothing: each is named and counted, and too many of them stop the run."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from kernels_eval.errors import InputError

_log = logging.getLogger(__name__)
_Read = TypeVar("_Read")
_Made = TypeVar("_Made")
NAMED = 20
"""Bad rows that the log names; of the others it has the number."""


def each(items: Iterable[_Read | InputError], make: Callable[[_Read], _Made]) -> Iterator[_Made | InputError]:
    """Yield what `make` returns for each item, or the InputError that stands for it or that `make` raises."""
    for item in items:
        if isinstance(item, InputError):
            yield item
            continue
        try:
            yield make(item)
        except InputError as error:
            yield error


class LeftOut:
    """The bad rows of a source: `keep` passes the others on, `check` stops where too many are bad."""

    def __init__(self, source: str, what: str, limit: float, setting: str) -> None:
        """Begin with none. `limit`: the share of rows that may be bad, the value of `setting`."""
        self._source, self._what, self._limit, self._setting = source, what, limit, setting
        self.errors: list[InputError] = []

    def keep(self, items: Iterable[_Made | InputError]) -> Iterator[_Made]:
        """Yield the items that are none of the bad ones, and note those."""
        for item in items:
            if isinstance(item, InputError):
                self.errors.append(item)
            else:
                yield item

    def check(self, kept: int) -> None:
        """Name the bad rows in the log; InputError with the first of them if they are more than the limit.

        `kept`: the number of good ones.
        """
        total = kept + len(self.errors)
        if not self.errors:
            return
        if kept == 0 and total == 1:
            raise self.errors[0]
        if kept == 0 or len(self.errors) > self._limit * total:
            allowed = "no good one is left" if kept == 0 else f"{self._setting} allows {self._limit:.0%}"
            counted = f"{len(self.errors)} of {total} {self._what} are bad; {allowed}"
            raise InputError(f"{self.errors[0]} ({counted})")
        for error in self.errors[:NAMED]:
            _log.warning("left out: %s", error)
        if len(self.errors) > NAMED:
            _log.warning("left out: %d more of the kind", len(self.errors) - NAMED)
        _log.warning("%s: %d of %d %s are left out", self._source, len(self.errors), total, self._what)
