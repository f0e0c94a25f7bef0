"""Interpreter process: loads of what the same program has stored, which the compiled kernel may carry out before that.

- A scalar is stored by one thread and loaded by all. Threads of other warps may find the old value, unless lanes have
  exchanged values in between. That does no harm where it is only stored again; in a block it does.
- Triton issues loads of a loop turns ahead, and asks no store of the loop whether it writes there: those that a matrix
  product takes, and in a `tl.range` with `num_stages` all. A barrier or a loop inside of the loop keeps them where they
  are, and so does a branch around the load. These wait for the memory in each turn.
"""

from typing import Any

from kernels_eval.interpreter.data_races import RACES, DataRaceError
from kernels_eval.interpreter.load_turns import LOAD_TURNS, marked

_LONE = object()
"""Mark of what threads of other warps may find otherwise."""


class Loop:
    """A loop that runs. Values that were loaded too early in it have it as a mark."""

    def __init__(self, stages: int, is_asked: bool) -> None:
        self.stages = stages
        """Turns under way at once."""
        self.is_asked = is_asked
        """True if the loop itself names them, for all its loads."""
        self.is_in_order = False
        """True once it has had a barrier or a loop inside, which keep its loads where they are."""
        self.is_branched = False
        """True within a branch."""
        self.starts: list[int] = []
        """Segment of RACES in which each turn began."""

    @property
    def fetches(self) -> bool:
        """True where loads are issued ahead."""
        return self.stages > 1 and not self.is_in_order and not self.is_branched

    def begin_turn(self) -> None:
        """Begin a turn."""
        ahead = self.stages if self.is_asked and not self.is_in_order else 1
        LOAD_TURNS.begin_turn(ahead, is_first=not self.starts, are_products_ahead=not self.is_in_order)
        self.is_branched = False
        self.starts.append(RACES.begin_turn())

    def overtakes(self, stored: int) -> bool:
        """True if a load of this turn is issued before a store of this segment."""
        return self.fetches and stored >= self.starts[-min(self.stages - 1, len(self.starts))]


class OwnStores:
    """Loops of the program that runs, the innermost one last."""

    def __init__(self) -> None:
        self.start(3)

    def start(self, stages: int) -> None:
        """Begin a launch. `stages`: of its loops with products."""
        self._stages = stages
        self._loops: list[Loop] = []
        self._before: dict[int, bool] = {}
        """Whether the program was in a branch before an `if` statement, by its number."""

    def suspend(self) -> list[Loop]:
        """Return what `resume` needs to let the program go on that runs now, after other ones."""
        loops, self._loops = self._loops, []
        return loops

    def resume(self, loops: list[Loop]) -> None:
        """Let a program go on that waited for others."""
        self._loops = loops

    def enter(self, stages: int | None) -> Loop:
        """Begin a loop. `stages`: what it asks for; None: nothing."""
        self.keep_in_order()
        loop = Loop(self._stages if stages is None else stages, stages is not None)
        self._loops.append(loop)
        return loop

    def leave(self) -> None:
        """End the innermost loop."""
        self._loops.pop()

    def keep_in_order(self) -> None:
        """Note a barrier, or another loop, in the innermost loop."""
        if self._loops:
            self._loops[-1].is_in_order = True
            LOAD_TURNS.keep_in_order()

    def branch(self, place: int, is_known: bool) -> None:
        """Note the begin of an `if` statement. `place`: a number of its own; `is_known`: to the compiler."""
        is_branched = bool(self._loops) and self._loops[-1].is_branched
        self._before[place] = is_branched
        self._set_branched(is_branched or not is_known)

    def join(self, place: int) -> None:
        """Note the end of an `if` statement: it may stand in the branch of another one."""
        self._set_branched(self._before.pop(place, False))

    def _set_branched(self, is_branched: bool) -> None:
        if self._loops:
            self._loops[-1].is_branched = LOAD_TURNS.is_branched = is_branched

    def load(self, loaded: Any, size: int, itemsize: int, *operands: Any) -> None:
        """Mark what a load of so many elements of so many bytes returned, by way of pointers and a mask.

        Raises DataRaceError.
        """
        stored = RACES.own_store
        marks = marked(loaded, operands)
        if not stored:
            return
        if size == 1 and RACES.is_unseen(stored):
            marks |= {_LONE}
        if self._loops and self._loops[-1].overtakes(stored) and not LOAD_TURNS.is_narrow(size, itemsize):
            if self._loops[-1].is_asked:
                _refuse(self._loops[-1])
            marks |= {self._loops[-1]}
        loaded.marks = marks

    def multiply(self, *operands: Any) -> None:
        """Check what a matrix product takes. Raises DataRaceError."""
        if self._loops and self._loops[-1].fetches:
            for operand in operands:
                if self._loops[-1] in getattr(operand, "marks", ()):
                    _refuse(self._loops[-1])

    def spread(self, handle: Any) -> None:
        """Check a value of which a block is made, or a condition. Raises DataRaceError."""
        if _LONE in getattr(handle, "marks", ()):
            raise DataRaceError(
                "the kernel uses in a block a scalar that one thread has stored and all threads load: other warps may "
                "find the old value, unless tl.debug_barrier() stands between"
            )


def _refuse(loop: Loop) -> None:
    raise DataRaceError(
        f"a loop loads what its last turns store: with num_stages={loop.stages} Triton issues such loads turns ahead "
        "of those stores. tl.debug_barrier() in the loop keeps them in order"
    )


OWN_STORES = OwnStores()
