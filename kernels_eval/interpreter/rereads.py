"""Interpreter process: data that programs of a launch read again after they have read much else.

A sector that a program reads a second time is found in a cache unless too much was read since, by this program and by
those that run beside it. So each sector that a program reads is noted with the bytes that it had read by then. What
another program reads in between is not read again: it is in the cache for both.
"""

from typing import Any, NamedTuple

import numpy as np

from kernels_eval.cost.launch import SECTOR_BYTES

_SHIFT = SECTOR_BYTES.bit_length() - 1
_NEAR_SECTORS = (32 << 10) // SECTOR_BYTES
"""Sectors read since, up to which one is still in its processor's own cache."""
_PAGES, _PAGE_BITS = 1 << 10, 10
"""Pages that programs which run together are noted in, 32 MB of what they read; the rest counts as read once."""
_MOST_PENDING = 1 << 20
"""Lanes that wait to be noted, at most."""
_Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Reread(NamedTuple):
    """Data that a launch's programs read again, all together."""

    nbytes: float
    """Bytes of the sectors."""
    reach: float
    """Bytes that a program read since it had read one of them, on average."""


class _Access(NamedTuple):
    """One load of the programs that run together."""

    storage: int
    """Its number."""
    offsets: Any
    """Byte offsets of its lanes in the storage, with a row for each program."""
    mask: Any
    """Lanes that take part; None: all."""

    def sectors(self) -> tuple[_Numbers, _Numbers]:
        """Return the sectors of each program and the program of each, from 0; neighbours in one sector come once."""
        lanes = self.offsets.shape[1]
        sectors = (self.offsets >> _SHIFT).ravel()
        if self.mask is None:
            is_first = np.empty(sectors.size, dtype=bool)
            is_first[1:] = sectors[1:] != sectors[:-1]
            is_first[::lanes] = True
            places = np.flatnonzero(is_first)
            return sectors[places], places // lanes
        taking = np.flatnonzero(self.mask)
        sectors, programs = sectors[taking], taking // lanes
        is_first = np.ones(sectors.size, dtype=bool)
        is_first[1:] = (sectors[1:] != sectors[:-1]) | (programs[1:] != programs[:-1])
        return sectors[is_first], programs[is_first]


class _Running(NamedTuple):
    """Programs that run together, while another one runs within an atomic of theirs."""

    first: int
    read: _Numbers
    noted: _Numbers


class Rereads:
    """Reads of the current launch's programs so far."""

    def __init__(self) -> None:
        count = _PAGES << _PAGE_BITS
        self._owners, self._stamps = np.zeros(count, np.int64), np.zeros(count, np.int32)
        """For each noted sector: the program that read it last, and how many it had read then, this one included."""
        self._lanes = np.zeros(count, np.int32)
        self._next = 1
        """Number of the next program, of all launches."""
        self.start()

    def start(self) -> None:
        """Begin a launch."""
        self._tables: dict[int, Any] = {}
        """For each storage, the page of each of its pages' worth of sectors; -1: none yet."""
        self._pages = self._again = self._apart = self._depth = 0
        self.begin(1)

    def begin(self, count: int) -> None:
        """Begin programs that run together, or one."""
        self._first, self._next = self._next, self._next + count
        self._read, self._noted = np.zeros(count, np.int64), np.zeros(count, np.int64)
        """Sectors that each has read; and of those that are noted already."""
        self._pending: list[_Access | int] | None = []
        """Loads that wait to be noted; those of all programs as the number of their sectors. None: none waits."""
        self._waiting = 0
        if not self._depth:  # programs that are suspended keep their pages
            self._pages = 0
            for table in self._tables.values():
                table.fill(-1)

    def suspend(self) -> _Running:
        """Return what is known of the program that runs, which another one interrupts."""
        self._depth += 1
        self._flush()
        return _Running(self._first, self._read, self._noted)

    def resume(self, running: _Running) -> None:
        """Go on with a program that was interrupted."""
        self._depth -= 1
        self._first, self._read, self._noted = running.first, running.read, running.noted
        self._pending = None

    def read_by_all(self, sectors: int) -> None:
        """Note a load of so many sectors that all programs which run together read: they stay in the cache for them."""
        self._add(sectors, sectors, 0)

    def note(self, storage: int, nbytes: int, offsets: Any, mask: Any, sectors: Any) -> None:
        """Note a load.

        Args:
            storage: its number.
            nbytes: its size.
            offsets: byte offsets of the lanes, with a row for each program.
            mask: lanes that take part; None: all.
            sectors: how many sectors each program reads, about.
        """
        if storage not in self._tables:
            self._tables[storage] = np.full((nbytes >> _SHIFT + _PAGE_BITS) + 1, -1, np.int32)
        self._add(_Access(storage, offsets, mask), sectors, offsets.size)

    def found(self) -> Reread:
        """Return what all programs read again."""
        reach = self._apart / self._again * SECTOR_BYTES if self._again else 0.0
        return Reread(float(self._again * SECTOR_BYTES), reach)

    def _add(self, access: _Access | int, sectors: Any, lanes: int) -> None:
        if self._pending is None:
            self._take(access)
            return
        self._pending.append(access)
        self._read += sectors
        self._waiting += lanes
        if self._waiting > _MOST_PENDING or int(self._read.max()) > _NEAR_SECTORS:
            self._flush()

    def _flush(self) -> None:
        """Note what waits. Of programs that end before they have read much nothing is noted: nothing can be far."""
        pending, self._pending = self._pending or [], None
        for access in pending:
            self._take(access)

    def _take(self, access: _Access | int) -> None:
        if isinstance(access, int):
            self._noted += access
            return
        sectors, programs = access.sectors()
        entries = self._entries(self._tables[access.storage], sectors)
        if entries.size and int(entries.min()) < 0:
            known = entries >= 0
            self._noted += np.bincount(programs[~known], minlength=self._noted.size)
            sectors, programs, entries = sectors[known], programs[known], entries[known]
        if not ((sectors[1:] > sectors[:-1]) | (programs[1:] != programs[:-1])).all():  # each sector once
            lanes = np.arange(entries.size, dtype=np.int32)
            self._lanes[entries] = lanes
            is_last = self._lanes[entries] == lanes
            programs, entries = programs[is_last], entries[is_last]
        owners, now = self._first + programs, self._noted[programs] + 1
        is_again = self._owners[entries] == owners
        if is_again.any():
            apart = (now - self._stamps[entries])[is_again]
            far = apart[apart > _NEAR_SECTORS]
            self._again += int(far.size)
            self._apart += int(far.sum())
        self._owners[entries], self._stamps[entries] = owners, now
        self._noted += np.bincount(programs, minlength=self._noted.size)

    def _entries(self, table: Any, sectors: _Numbers) -> _Numbers:
        """Return the places of a storage's sectors in the pages; negative ones: there is no page left."""
        pages = sectors >> _PAGE_BITS
        found = table[pages]
        if self._pages < _PAGES and found.size and int(found.min()) < 0:
            new = np.unique(pages[found < 0])[: _PAGES - self._pages]
            table[new] = np.arange(self._pages, self._pages + new.size)
            self._pages += new.size
            found = table[pages]
        return (found.astype(np.int64) << _PAGE_BITS) | (sectors & ((1 << _PAGE_BITS) - 1))


REREADS = Rereads()
