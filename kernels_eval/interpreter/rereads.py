"""Interpreter process: data that programs of a launch read again after they have read much else.

A sector that a program reads a second time is found in a cache unless too much was read since, by this program and by
those that run beside it. Noted for a sample of the programs: for each sector how many bytes its program had read when
it read it last.
"""

from typing import Any, NamedTuple

import numpy as np

_SECTOR_BYTES = 32
_NEAR_BYTES = 32 << 10
"""What a program read no more than so many bytes ago is in its processor's own cache."""
_ONE_IN = 8
"""Programs that run one by one of which one is noted."""


class Reread(NamedTuple):
    """Data that a launch's programs read again, all together, without what they share."""

    nbytes: float
    """Bytes of the sectors."""
    reach: float
    """Bytes that a program read since it had read one of them, on average."""


class Rereads:
    """Reads of the current launch's programs so far."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a launch."""
        self._stamps: dict[int, Any] = {}
        """For each sector, by the storage's number: sectors that were read before it was read last, counted from 1."""
        self._read = self._begun = self._seen = self._noted = self._own = self._again = self._apart = 0
        self._is_noted = False

    def begin_program(self) -> None:
        """Begin a program of those that run one by one."""
        self._is_noted = self._seen % _ONE_IN == 0
        self._seen += 1
        if self._is_noted:
            self._begin()

    def begin_batch(self) -> None:
        """Begin a batch of programs, of which the first one is noted."""
        self._is_noted = True
        self._begin()

    def note(self, number: int, offsets: Any, nbytes: int) -> None:
        """Note a load of the program by the offsets of its lanes in a storage of `nbytes`."""
        if not self._is_noted or not offsets.size:
            return
        sectors = offsets // _SECTOR_BYTES
        is_next = np.ones(sectors.size, dtype=bool)
        is_next[1:] = sectors[1:] != sectors[:-1]
        sectors = sectors[is_next]
        stamps = self._stamps.get(number)
        if stamps is None:
            stamps = self._stamps[number] = np.zeros(nbytes // _SECTOR_BYTES + 1, np.int64)
        before = stamps[sectors]
        is_again = before > self._begun
        apart = self._read + 1 - before[is_again]
        far = apart > _NEAR_BYTES // _SECTOR_BYTES
        self._own += int(sectors.size - apart.size)
        self._again += int(np.count_nonzero(far))
        self._apart += int(apart[far].sum())
        stamps[sectors] = self._read + 1
        self._read += int(sectors.size)

    def found(self, programs: int, distinct_bytes: float) -> Reread:
        """Return what all programs read again. `distinct_bytes`: of the sectors that any of them read.

        Programs that read the same share what they find.
        """
        if not self._again:
            return Reread(0.0, 0.0)
        own_bytes = programs * self._own / self._noted * _SECTOR_BYTES
        sharing = max(1.0, own_bytes / max(distinct_bytes, 1.0))
        nbytes = programs * self._again / self._noted * _SECTOR_BYTES / sharing
        return Reread(nbytes, self._apart / self._again * _SECTOR_BYTES / sharing)

    def _begin(self) -> None:
        self._begun = self._read
        self._noted += 1


REREADS = Rereads()
