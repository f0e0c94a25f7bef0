"""Whether what a policy trains on overlaps with the held-out problems.

Two degrees. SAME: equal normalised source (comments, layout and docstrings aside); such training rows are dropped.
SIMILAR: equal shape (own names and numbers aside, tasks.problems.fingerprint): another size of a held-out problem, kept and
counted. An overlap that was rewritten (other operators for the same result) is not seen.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from kernels_eval.problem import normalise_source
from tasks.problems.fingerprint import shape_of

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Overlap(StrEnum):
    """How close a training source is to a held-out problem."""

    NONE = "none"
    """No held-out problem has this source or this shape."""
    SIMILAR = "similar"
    """A held-out problem has this shape, with other names or numbers."""
    SAME = "same"
    """A held-out problem has this very source."""


class Cleaned(NamedTuple, Generic[T]):
    """What is left of training rows without those that are held-out problems."""

    clean: list[T]
    """The rows that may be trained on, in their order."""
    dropped: int
    """Rows left out: the SAME as a held-out problem."""
    similar: int
    """Rows among `clean` that are SIMILAR to a held-out problem."""


class HeldoutSources:
    """The held-out problems, prepared once for many comparisons."""

    def __init__(self, sources: Iterable[str]) -> None:
        """Normalise the held-out sources."""
        sources = list(sources)
        self._normalised = {normalise_source(source) for source in sources}
        self._shapes = {shape_of(source) for source in sources}

    def overlap_of(self, source: str) -> Overlap:
        """Return how close one training source is to the nearest held-out problem."""
        if normalise_source(source) in self._normalised:
            return Overlap.SAME
        return Overlap.SIMILAR if shape_of(source) in self._shapes else Overlap.NONE


def contaminated(sources: Sequence[str], heldout: Iterable[str]) -> list[Overlap]:
    """Return the overlap of each training source with the held-out sources, in order."""
    compared = HeldoutSources(heldout)
    return [compared.overlap_of(source) for source in sources]


def drop_contaminated(rows: Sequence[T], heldout: Iterable[str], source_of: Callable[[T], str]) -> Cleaned[T]:
    """Return the training rows whose problem source is no held-out problem's, and how many were dropped or are similar."""
    overlaps = contaminated([source_of(row) for row in rows], heldout)
    cleaned = Cleaned(
        clean=[row for row, overlap in zip(rows, overlaps, strict=True) if overlap is not Overlap.SAME],
        dropped=overlaps.count(Overlap.SAME),
        similar=overlaps.count(Overlap.SIMILAR),
    )
    if cleaned.dropped:
        _log.warning("dropped %d of %d training rows: their problem is held out", cleaned.dropped, len(rows))
    if cleaned.similar:
        _log.warning("%d of %d training rows have a held-out problem's shape", cleaned.similar, len(rows))
    return cleaned
