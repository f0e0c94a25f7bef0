"""Interpreter process: turns of loops in which a program waits for what it loads.

A program issues its loads in order and waits where it first uses one. Loads of one turn of a loop are under way
together, those of the next turn are not: a loop over a long row waits for the memory once a turn. It does not wait for
what a matrix product alone takes, which Triton fetches turns ahead, nor for lines that it has just loaded.

A load whose address or mask comes from an earlier load waits for that one, in whatever loop, or in none: the longest
chain of such loads counts where it is longer than the turns. Nor are scalars fetched ahead, or blocks of which a thread
takes fewer than four bytes: the instruction that does it takes four at least.

A program that asks an atomic until another one has let it go on, as a lock does, also waits for that one's turns.
"""

import functools
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

Loads = frozenset[int]
"""Numbers of the loads that a value was computed from, as far as that is followed."""
NO_LOADS: Loads = frozenset()
Marks = frozenset[Any]
"""Properties that a value has from loads that it was computed from (kernels_eval.interpreter.own_stores)."""
_NO_MARKS: Marks = frozenset()
_LINE_BITS = 7
_LINE_BYTES = 1 << _LINE_BITS
_NEAR_LINES = (32 << 10) >> _LINE_BITS
"""Lines of one load that a processor's own cache keeps."""
_KEPT = 8
"""Loads whose lines are still there."""
_LEAST_FETCHED = 4
"""Bytes of a thread."""
_HANDED_ON = 3.0
"""Turns that an atomic takes to let another program go on: a way to the L2 cache for each, and back."""
_LARGEST = np.uint64(2**64 - 1)
_FOLLOWED = 32
"""Loads of one value that are followed, the newest ones: a sum over a long row comes from those of every turn."""


@dataclass(frozen=True)
class Awaited:
    """Mark of what an atomic found: turns after which another one let its program go on."""

    turns: float


_OF_A_PROGRAM = (
    "_turns", "_waited", "_share", "_are_products_ahead", "is_branched", "_loaded", "_narrow", "_recent",
    "_noted",
)  # fmt: skip
"""Attributes that `begin` makes anew."""


class LoadTurns:
    """Turns of the current launch's programs."""

    def __init__(self) -> None:
        self.start(3)

    def start(self, stages: int, threads: int = 1) -> None:
        """Begin a launch. `stages`: of its loops with products; with one, nothing is fetched ahead.

        `threads`: of a program.
        """
        self._threads = threads
        self.most = 0.0
        """Turns of the program with the most."""
        self._deepest = 0
        """Loads of the longest chain in which each waits for the one before."""
        self._is_fetched = stages > 1
        self._number = 0
        self._released: dict[int, float] = {}
        """By address, turns after which programs that wait for its last atomic go on."""
        self.queue: tuple[int, int] | None = None
        """Address from which programs take their tiles in turn, and their number."""
        self._done = 0.0
        """Turns of all programs up to the last tile that each has taken."""
        self.begin()

    def begin(self) -> None:
        """Begin a program, or several that run together."""
        self._turns: Any = 0.0
        self._waited = 0.0
        """Turns of other programs that it waited for."""
        self._noted = 0.0
        """Those of its turns that are in `_done`."""
        self._share = 1.0
        self._are_products_ahead = True
        self.is_branched = False
        """True in a branch, where nothing is fetched ahead."""
        self._loaded: dict[int, Any] = {}
        """Loads of this turn by number, with the programs that wait for them."""
        self._narrow: set[int] = set()
        """Those of them that nothing fetches ahead."""
        self._recent: deque[tuple[Any, Any]] = deque(maxlen=_KEPT)

    def end(self) -> None:
        """End what `begin` began."""
        self.begin_turn(1)
        self.most = max(self.most, self._waited + float(np.max(self._turns)), self._deepest)
        self.begin()

    def begin_turn(self, stages: int, is_first: bool = False, are_products_ahead: bool = True) -> None:
        """Begin a turn of a loop, or what follows one.

        Args:
            stages: turns that the loop itself asks to have under way.
            is_first: the loop's first one, for which there is none before it to fetch ahead in.
            are_products_ahead: False if the loop fetches nothing ahead for its products either.
        """
        if self._loaded:
            waits = self._share * functools.reduce(np.logical_or, self._loaded.values())
            for number in self._narrow & self._loaded.keys():
                waits = np.maximum(waits, self._loaded[number])
            self._turns = self._turns + waits
            self._loaded.clear()
            self._narrow.clear()
        self._share = 1.0 if is_first else 1.0 / max(1, stages - 1)
        self._are_products_ahead = are_products_ahead
        self.is_branched = False

    def suspend(self) -> dict[str, Any]:
        """Return what `resume` needs to let the program go on that runs now, after other ones."""
        state = {name: getattr(self, name) for name in _OF_A_PROGRAM}
        self.begin()
        return state

    def resume(self, state: dict[str, Any]) -> None:
        """Let a program go on that waited for others."""
        for name, value in state.items():
            setattr(self, name, value)

    def release(self, address: int, is_idle: bool = False) -> Awaited:
        """Note an atomic on one address; returns the mark of what it found. `is_idle`: it has changed nothing.

        Who takes a tile from a queue waits for nobody in particular, but until as much was done by all side by side.
        """
        self.begin_turn(1)
        before = self._released.get(address, 0.0)
        if is_idle:
            return Awaited(before)
        own = float(np.max(self._turns))
        self._released[address] = max(before, self._waited + own + _HANDED_ON)
        if self.queue is None or address != self.queue[0]:
            return Awaited(before)
        self._done += own - self._noted
        self._noted = own
        return Awaited(self._done / self.queue[1])

    def wait(self, marks: Marks) -> None:
        """Note that a program goes on only once a value with these marks lets it."""
        own = self._waited + float(np.max(self._turns))
        for mark in marks:
            if isinstance(mark, Awaited):
                self._waited += max(0.0, mark.turns - own)

    def keep_in_order(self) -> None:
        """Note that nothing is fetched ahead for this turn."""
        self._share = 1.0
        self._are_products_ahead = False

    def load(self, addresses: Any, mask: Any, itemsize: int) -> Loads:
        """Note a load; returns its number, to be passed on with its value.

        Args:
            addresses: of the lanes, with a row for each program that runs.
            mask: lanes that take part, as `addresses`; None: all.
            itemsize: bytes of a lane.
        """
        active: Any = addresses.shape[1]
        lowest, highest = addresses, addresses
        if mask is not None and not mask.all():
            active = np.count_nonzero(mask, axis=1)
            lowest, highest = np.where(mask, addresses, _LARGEST), np.where(mask, addresses, np.uint64(0))
        first = lowest.min(axis=1) >> np.uint64(_LINE_BITS)
        last = (highest.max(axis=1) + np.uint64(itemsize - 1)) >> np.uint64(_LINE_BITS)
        is_near = np.broadcast_to(active == 0, first.shape)
        for start, end in self._recent:
            is_near = is_near | ((start <= first) & (last <= end))
        lines = last.astype(np.int64) - first.astype(np.int64) + 1
        is_dense = ((lines - 2) * _LINE_BYTES <= active * itemsize) & (lines <= _NEAR_LINES) & (lines > 0)
        self._recent.append((np.where(is_dense, first, _LARGEST), np.where(is_dense, last, np.uint64(0))))
        if is_near.all():
            return NO_LOADS
        self._number += 1
        self._loaded[self._number] = ~is_near
        if self.is_branched or self.is_narrow(addresses.shape[1], itemsize):
            self._narrow.add(self._number)
        return frozenset((self._number,))

    def is_narrow(self, size: int, itemsize: int) -> bool:
        """True for a load of so many elements of so many bytes that nothing fetches ahead."""
        return size == 1 or max(1, size // self._threads) * itemsize < _LEAST_FETCHED

    def follow(self, loaded: Any, loads: Loads, *operands: Any) -> None:
        """Note what a load returned, whose pointers and mask are given, and the loads that it waited for."""
        loaded.loads = loads
        loaded.depth = max(map(depth_of, operands)) + bool(loads)
        self._deepest = max(self._deepest, loaded.depth)

    def multiply(self, *operands: Any) -> None:
        """Note that a matrix product takes these values."""
        if self._is_fetched and self._are_products_ahead:
            for operand in operands:
                for number in loads_of(operand) - self._narrow:
                    self._loaded.pop(number, None)


def loads_of(handle: Any) -> Loads:
    """Return the loads that a value was computed from."""
    return getattr(handle, "loads", NO_LOADS)


def depth_of(handle: Any) -> int:
    """Return how many loads had to wait for one another before a value was there."""
    return getattr(handle, "depth", 0)


def deepened(result: Any, operands: tuple[Any, ...]) -> Any:
    """Return a result, which is there once all of its operands are."""
    depth = max(map(depth_of, operands))
    if depth:
        result.depth = depth
    marked(result, operands)
    return result


def marked(result: Any, operands: tuple[Any, ...]) -> Marks:
    """Give a result the marks of its operands; returns them."""
    found = _NO_MARKS
    for operand in operands:
        marks = getattr(operand, "marks", None)
        if marks:
            found |= marks
    if found:
        result.marks = found
    return found


def passed_on(result: Any, operands: tuple[Any, ...]) -> Any:
    """Return a result, with the newest loads of its operands."""
    found = NO_LOADS
    for operand in operands:
        loads = loads_of(operand)
        if loads:
            found = found | loads if found else loads
    if len(found) > _FOLLOWED:
        found = frozenset(sorted(found)[-_FOLLOWED:])
    if found:
        result.loads = found
    return deepened(result, operands)


LOAD_TURNS = LoadTurns()
