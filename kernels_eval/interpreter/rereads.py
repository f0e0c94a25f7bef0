"""Interpreter process: data that programs of a launch read again after they have read much else.

A sector that a program reads a second time is found in a cache unless too much was read since, by this program and by
those that run beside it. Noted for a sample of the programs: for each sector how many bytes its program had read when
it read it last.
"""

from typing import Any, NamedTuple

import numpy as np

_SECTOR_BYTES = 32
_NEAR_BYTES = 32 << 10
"""Distance within which a sector is still in its processor's own cache."""
_ONE_IN = 8
"""Programs that run one by one of which one is noted."""
_PLACES = 1 << 20
"""Sectors of which stamps are kept, 32 MB. Others that a program reads count as read once."""


class Reread(NamedTuple):
    """Data that a launch's programs read again, all together, without what they share."""

    nbytes: float
    """Bytes of the sectors."""
    reach: float
    """Bytes that a program read since it had read one of them, on average."""


class Rereads:
    """Reads of the current launch's programs so far."""

    def __init__(self) -> None:
        self._numbers, self._stamps = np.zeros(_PLACES, np.int64), np.zeros(_PLACES, np.int64)
        """By a sector's number modulo the size: whose stamp it is, and how many sectors were read when it was."""
        self._read = 0
        """Sectors that were noted, in all launches: a stamp is of this program if it is larger than at its begin."""
        self.start()

    def start(self) -> None:
        """Begin a launch."""
        self._first: dict[int, int] = {}
        """Number of each storage's first sector, by the storage's number."""
        self._sectors = self._seen = self._noted = self._own = self._again = self._apart = 0
        self._begun = self._read
        self._alike = 1
        """Programs that the one that is noted stands for."""
        self._is_noted = False

    def begin_program(self) -> None:
        """Begin a program of those that run one by one."""
        self._is_noted = self._seen % _ONE_IN == 0
        self._seen += 1
        if self._is_noted:
            self._begin(1)

    def begin_batch(self, count: int) -> None:
        """Begin a batch of so many programs, of which one is noted."""
        self._is_noted = True
        self._begin(count)

    def note(self, number: int, offsets: Any, nbytes: int) -> None:
        """Note a load of the program by the offsets of its lanes in a storage of `nbytes`."""
        if not self._is_noted or not offsets.size:
            return
        sectors = offsets // _SECTOR_BYTES
        is_next = np.ones(sectors.size, dtype=bool)
        is_next[1:] = sectors[1:] != sectors[:-1]
        numbers = sectors[is_next] + self._first_of(number, nbytes)
        places = numbers % _PLACES
        is_known, before = self._numbers[places] == numbers, self._stamps[places]
        is_own = before > self._begun
        is_again = is_own & is_known
        apart = self._read + 1 - before[is_again]
        far = apart > _NEAR_BYTES // _SECTOR_BYTES
        self._own += self._alike * int(numbers.size - apart.size)
        self._again += self._alike * int(np.count_nonzero(far))
        self._apart += self._alike * int(apart[far].sum())
        is_kept = is_known | ~is_own
        self._numbers[places[is_kept]], self._stamps[places[is_kept]] = numbers[is_kept], self._read + 1
        self._read += int(numbers.size)

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

    def _first_of(self, number: int, nbytes: int) -> int:
        if number not in self._first:
            self._first[number] = self._sectors
            self._sectors += nbytes // _SECTOR_BYTES + 1
        return self._first[number]

    def _begin(self, alike: int) -> None:
        self._begun, self._alike = self._read, alike
        self._noted += alike


REREADS = Rereads()
