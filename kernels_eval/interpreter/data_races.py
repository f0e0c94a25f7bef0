"""Interpreter process: conflicts between the programs of one launch, and between the lanes of one program.

Programs of a launch run in any order, at the same time. Two of them conflict at an element of memory if one writes it
and the other reads or writes it, unless both accesses are atomic, or the first is ordered before the second by atomics:
a release at some address by the first program, after its access, and an acquire there by the second, before its own.
Only atomics on one address (not on a block of them) order programs. A store that leaves the element's bits as they are
conflicts with nothing: its result is the same in any order.

Lanes of one program conflict if one store gives an element two values, or if a lane loads or overwrites what another
lane has stored since the last barrier (`tl.debug_barrier`, or an atomic on one address whose result is used). Nor may a
lane overwrite what a lane of another warp has loaded, or touch what one updates by an atomic: each warp runs ahead as
far as it can. A reduction, a product or a new arrangement of a block in between makes them wait for one another. 32
neighbours of a block lie in one warp.

Each storage has a shadow: for each element the last plain writer, the first reader and the first atomic of the
launch, and the lane that stored it. A program runs to its end before the next one starts, so the first reader
suffices: if it is the program that writes, no other program has read before. Programs are known by segments, numbers
that rise with each program, barrier and release, over all launches: shadows are never cleared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels_eval.interpreter.shadow_memory import (
    Access,
    Flags,
    Places,
    Segments,
    Shadow,
    bits_of,
    changed,
    element,
    places_of,
)

Program = tuple[int, int, int]
_WARP_BITS = 5
"""Bits of a lane's number that tell it from the others of its warp."""
_ENGINE = -1
"""In the place of a lane: the engine that carries out accesses of descriptors."""
_SEVERAL = -1
"""In `loaders`: lanes of several warps."""


class DataRaceError(Exception):
    """Raised if the result of a launch depends on the order of its programs, or of one program's lanes."""


@dataclass
class RaceCheck:
    """The segments and the order of the programs of the current launch."""

    _segment: int = 0
    _launch: int = 1
    """First segment of the launch."""
    _program: int = 1
    """First segment of the program that runs."""
    _barrier: int = 1
    """First segment of the program after its last barrier."""
    _exchange: int = 1
    """First segment of the program after its lanes last waited for one another, to exchange values or at a barrier."""
    is_of_engine: bool = False
    """True for the access of a descriptor, which no lane makes."""
    is_answered: bool = True
    """False for an atomic whose result nobody uses."""
    own_store: int = 0
    """Segment of the newest store, or atomic, of this program that the last load met; 0: it met none since the last
    barrier."""
    has_warps: bool = True
    """False if the launch's programs are of one warp, whose lanes load together."""
    _owners: list[int] = field(default_factory=list)
    """Of each segment of the launch: its program's number, in the order in which programs were started."""
    _indices: list[Program] = field(default_factory=list)
    """Index in the grid of each program, by number."""
    _released: dict[int, dict[int, int]] = field(default_factory=dict)
    """By address: of each program, by number, the last segment that is ordered before an acquire there."""
    _acquired: list[dict[int, int]] = field(default_factory=list)
    """Entries of `_released` that the program that runs has acquired."""
    _number: int = 0
    _has_stored: bool = False
    """True if the program has stored anything in the segment that runs."""
    _is_interleaved: bool = False
    """True once a program ran while another one waited."""

    def start_launch(self) -> None:
        """Forget the accesses of earlier launches."""
        self._launch = self._segment + 1
        self._owners, self._indices, self._released = [], [], {}
        self._is_interleaved = False

    def start_program(self, index: Program) -> None:
        """Note that a program starts."""
        self._number = len(self._indices)
        self._indices.append(index)
        self._acquired = []
        self._begin_segment()
        self._program = self._barrier = self._exchange = self._segment

    def suspended(self) -> tuple[Any, ...]:
        """Return what `resume` needs to let the program go on that runs now, after other ones."""
        self._is_interleaved = True
        return self._number, self._program, self._acquired

    def resume(self, state: tuple[Any, ...]) -> None:
        """Let a program go on that waited for others."""
        self._number, self._program, self._acquired = state
        self.barrier()

    def barrier(self) -> None:
        """Order all that the program's lanes did before all that they do after it."""
        self._begin_segment()
        self._barrier = self._exchange = self._segment

    def exchange(self) -> None:
        """Order all that the program's lanes have loaded before all that they store from now on."""
        self._begin_segment()
        self._exchange = self._segment

    def begin_turn(self) -> int:
        """Begin a turn of a loop; returns the segment of what it stores until its lanes wait for one another."""
        if self._has_stored:
            self._begin_segment()
        return self._segment

    def is_unseen(self, stored: int) -> bool:
        """True if lanes of other warps need not have seen what one lane of the program stored in this segment."""
        return self.has_warps and stored >= self._exchange

    def acquire(self, address: int) -> None:
        """Order what other programs released at an address before all that follows in this program."""
        released = self._released.get(address)
        if released is not None and not any(released is known for known in self._acquired):
            self._acquired.append(released)

    def release(self, address: int) -> None:
        """Order all that this program has done, or acquired, before what others do after an acquire at the address."""
        released = self._released.setdefault(address, {})
        for known in self._acquired:
            if known is not released:
                for number, segment in known.items():
                    released[number] = max(segment, released.get(number, 0))
        released[self._number] = self._segment
        if self.is_answered:
            self.barrier()
        else:
            self._begin_segment()

    def unanswered(self, atomic: Callable[[], Any]) -> None:
        """Carry out an atomic whose result nobody uses: its program's lanes do not wait for it."""
        self.is_answered = False
        try:
            atomic()
        finally:
            self.is_answered = True

    def load(self, shadow: Shadow, access: Access, is_recorded: bool) -> None:
        """Check a plain load. `is_recorded`: False for memory that no kernel is going to write."""
        places, lanes = places_of(shadow, access)
        if shadow.writers is not None:
            prior = shadow.writers[places]
            self._check(prior, places, access, "reads", "wrote")
            self._check_lanes(shadow, prior, places, lanes, access)
            self._note_own(prior)
        if shadow.atomics is not None:
            self._check(shadow.atomics[places], places, access, "reads, without an atomic,", "wrote by an atomic")
            self._check_updaters(shadow, places, lanes, access)
        if shadow.updates is not None:
            self._note_own(shadow.updates[places])
        if is_recorded:
            if shadow.readers is None:
                shadow.readers = shadow.elements()
            self._record_first(shadow.readers, places)
            if self.has_warps:
                if shadow.loads is None or shadow.loaders is None:
                    shadow.loads, shadow.loaders = shadow.elements(), shadow.elements()
                self._record_loaders(shadow.loads, shadow.loaders, places, lanes)

    def store(self, shadow: Shadow, access: Access) -> None:
        """Check and record a store, before it is carried out."""
        places, lanes = places_of(shadow, access)
        if shadow.readers is not None:
            self._check(shadow.readers[places], places, access, "writes", "read")
        if shadow.loads is not None and shadow.loaders is not None:
            self._check_loaders(shadow.loads[places], shadow.loaders[places], places, lanes, access)
        if shadow.atomics is not None:
            self._check(shadow.atomics[places], places, access, "writes, without an atomic,", "wrote by an atomic")
            self._check_updaters(shadow, places, lanes, access)
        if shadow.writers is None or shadow.lanes is None:
            shadow.writers, shadow.lanes = shadow.elements(), shadow.elements()
        prior = shadow.writers[places]
        self._check(prior, places, access, "writes", "wrote")
        self._check_lanes(shadow, prior, places, lanes, access)
        shadow.writers[places] = self._segment
        self._has_stored = True
        shadow.lanes[places] = lanes
        self._check_duplicates(shadow.lanes[places], lanes, access)
        if self.is_of_engine:
            shadow.lanes[places] = _ENGINE

    def atomic(self, shadow: Shadow, access: Access, is_write: bool, is_for_all: bool = True) -> None:
        """Check and record an atomic.

        Args:
            is_write: False for a volatile load.
            is_for_all: False for one of the scope `cta`, which is atomic among the lanes of its own program alone.
        """
        places, lanes = places_of(shadow, access)
        if shadow.writers is not None:
            prior = shadow.writers[places]
            self._check(prior, places, access, "updates by an atomic", "wrote without one")
            if shadow.lanes is not None:
                does = "updates" if is_write else "loads"
                self._check_engine(prior, shadow.lanes[places], places, access, does)
            if is_write and self.has_warps and shadow.lanes is not None:
                self._check_crossed(prior, shadow.lanes[places], places, lanes, access, "updates", "stored it")
        if not is_write:
            return
        if shadow.readers is not None:
            self._check(shadow.readers[places], places, access, "updates by an atomic", "read without one")
        if shadow.atomics is None:
            shadow.atomics = shadow.elements()
        elif not is_for_all:
            self._check(shadow.atomics[places], places, access, "updates, with scope='cta',", "updated by an atomic")
        self._record_first(shadow.atomics, places)
        if self.has_warps:
            self._record_updaters(shadow, places, lanes)

    def _begin_segment(self) -> None:
        self._segment += 1
        self._owners.append(self._number)
        self._has_stored = False

    def _note_own(self, prior: Segments) -> None:
        newest = int(prior.max())
        if newest >= self._barrier:
            self.own_store = max(self.own_store, newest)

    def _record_first(self, array: Segments, places: Places) -> None:
        is_first = array[places] < self._launch
        if is_first.all():
            array[places] = self._segment
        elif is_first.any():
            array[places[is_first]] = self._segment

    def _record_loaders(self, loads: Segments, loaders: Segments, places: Places, lanes: Segments) -> None:
        is_shared = (loads[places] >= self._exchange) & _in_other_warps(loaders[places], lanes)
        loads[places] = self._segment
        loaders[places] = lanes
        is_shared |= _in_other_warps(loaders[places], lanes)  # lanes of this load have elements in common
        loaders[places[is_shared]] = _SEVERAL

    def _record_updaters(self, shadow: Shadow, places: Places, lanes: Segments) -> None:
        if shadow.updates is None or shadow.updaters is None:
            shadow.updates, shadow.updaters = shadow.elements(), shadow.elements()
        is_shared = (shadow.updates[places] >= self._exchange) & (shadow.updaters[places] != lanes)
        shadow.updates[places] = self._segment
        self._has_stored = True
        shadow.updaters[places] = lanes
        is_shared |= shadow.updaters[places] != lanes
        shadow.updaters[places[is_shared]] = _SEVERAL

    def _check(self, prior: Segments, places: Places, access: Access, does: str, did: str) -> None:
        """Raise DataRaceError if an element was last touched by another program, in an order that is not defined."""
        foreign = changed(self._foreign(prior), access)
        for segment in np.unique(prior[foreign]) if foreign.size else ():
            number = self._owners[segment - self._launch]
            if not any(known.get(number, 0) >= segment for known in self._acquired):
                place = element(access, int(foreign[prior[foreign] == segment][0]), places.size)
                raise DataRaceError(
                    f"program {self._indices[self._number]} {does} {place}, which program {self._indices[number]} of "
                    f"the same launch {did}: programs run in any order, at the same time. Use atomics, or two launches"
                )

    def _foreign(self, prior: Segments) -> Flags:
        is_recent = prior >= self._launch
        if not self._is_interleaved:
            return is_recent & (prior < self._program)
        owners = np.array(self._owners)
        return is_recent & (owners[np.where(is_recent, prior - self._launch, 0)] != self._number)

    def _check_lanes(self, shadow: Shadow, prior: Segments, places: Places, lanes: Segments, access: Access) -> None:
        is_recent = prior >= self._launch  # of other programs those alone that are ordered before this access
        if not is_recent.any():
            return
        assert shadow.lanes is not None
        stored_by = shadow.lanes[places]
        self._check_engine(prior, stored_by, places, access, "loads" if access.values is None else "overwrites")
        is_other = self.is_of_engine or stored_by != lanes
        crossed = changed((prior >= self._barrier) & is_other, access)
        if crossed.size:
            place = element(access, int(crossed[0]), places.size)
            raise DataRaceError(
                f"program {self._indices[self._number]} {'loads' if access.values is None else 'overwrites'} {place} "
                "in another lane than the one that stored it: lanes wait for one another only at tl.debug_barrier()"
            )

    def _check_engine(self, prior: Segments, stored_by: Segments, places: Places, access: Access, does: str) -> None:
        """Raise DataRaceError for a read of what a descriptor stored, or a store over what another program's did."""
        by_engine = (prior >= self._launch) & (stored_by == _ENGINE)
        if not by_engine.any():
            return
        owners = np.array(self._owners)[np.where(by_engine, prior - self._launch, 0)]
        is_store = does == "overwrites"
        found = changed(by_engine & (owners != self._number), access) if is_store else np.flatnonzero(by_engine)
        if not found.size:
            return
        place, number = element(access, int(found[0]), places.size), owners[found[0]]
        raise DataRaceError(
            f"program {self._indices[self._number]} {does} {place}, which "
            f"{'it' if number == self._number else f'program {self._indices[number]}'} stored by a descriptor: "
            "neither a barrier nor an atomic waits until such a store is complete, the end of the launch does"
        )

    def _check_updaters(self, shadow: Shadow, places: Places, lanes: Segments, access: Access) -> None:
        if shadow.updates is not None and shadow.updaters is not None:
            does = "loads" if access.values is None else "overwrites"
            stored_by = shadow.updaters[places]
            self._check_crossed(shadow.updates[places], stored_by, places, lanes, access, does, "updated it")

    def _check_crossed(
        self, prior: Segments, by: Segments, places: Places, lanes: Segments, access: Access, does: str, did: str
    ) -> None:
        """Raise DataRaceError if another lane touched an element since lanes last waited for one another."""
        crossed = np.flatnonzero((prior >= self._exchange) & (by != lanes))
        if crossed.size:
            place = element(access, int(crossed[0]), places.size)
            raise DataRaceError(
                f"program {self._indices[self._number]} {does} {place} in another lane than one that {did}: lanes "
                "wait for one another only at tl.debug_barrier()"
            )

    def _check_loaders(
        self, loads: Segments, loaders: Segments, places: Places, lanes: Segments, access: Access
    ) -> None:
        crossed = changed((loads >= self._exchange) & _in_other_warps(loaders, lanes), access)
        if crossed.size:
            place = element(access, int(crossed[0]), places.size)
            raise DataRaceError(
                f"program {self._indices[self._number]} overwrites {place} in another warp than one that loaded "
                "it: a warp may store before another one has loaded, unless tl.debug_barrier() stands between"
            )

    def _check_duplicates(self, stored: Segments, lanes: Segments, access: Access) -> None:
        """Raise DataRaceError if two lanes of one store write different values to the same element."""
        lost = np.flatnonzero(stored != lanes)
        if not lost.size or access.values is None:
            return
        bits = bits_of(access.values)
        size = stored.size // access.offsets.size
        order = np.argsort(lanes[::size])
        winners = order[np.searchsorted(lanes[::size], stored[lost], sorter=order)]
        different = (bits[lost // size] != bits[winners]).any(axis=1)
        if different.any():
            place = int(lost[np.flatnonzero(different)[0]])
            raise DataRaceError(
                f"one store of program {self._indices[self._number]} writes different values to "
                f"{element(access, place, stored.size)}, in two of its lanes: the last one to arrive wins"
            )


def _in_other_warps(some: Segments, others: Segments) -> Flags:
    return some >> _WARP_BITS != others >> _WARP_BITS


RACES = RaceCheck()
