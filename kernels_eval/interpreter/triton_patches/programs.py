"""Interpreter process: runs the programs of a launch one after the other, and the atomics that order them.

A program runs to its end before the next one starts, except where it waits for another one: after some atomics in a
row that change nothing, or volatile loads, another one runs within the last. A program that waits for one which is
itself waiting so is stuck. Then the launch can be run in the order of the grid, where waiting for earlier programs
ends. Programs that wait for each other in turn, as at the second of two barriers of a whole grid, never end: the time
limit ends them.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from kernels_eval.interpreter.contention import count_atomics
from kernels_eval.interpreter.data_races import RACES
from kernels_eval.interpreter.load_turns import LOAD_TURNS
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, record_access
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.rereads import REREADS
from kernels_eval.interpreter.triton_patches.names import upstream

_PATIENCE = 4
"""Atomics in a row that change nothing, after which a program is taken to wait for another one."""
_FLAGS = 4
"""Addresses that a program may wait for at once by volatile loads."""
_UNEVEN = 2
"""Even shares of changes at one address, beyond which a program has taken more than its own."""
_LONG = 250
"""Times that a program waits so while none is left to start, after which it is taken to be stuck."""
BARRIER_WAITS = 3.0
"""Reductions that keep a program waiting as long as a barrier does (docs/estimates.md)."""
_ir: Any = upstream._ir
_ACQUIRES = (_ir.MEM_SEMANTIC.ACQUIRE, _ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_RELEASES = (_ir.MEM_SEMANTIC.RELEASE, _ir.MEM_SEMANTIC.ACQUIRE_RELEASE)
_EXCHANGING = (
    "create_dot", "create_dot_scaled", "create_trans", "create_reshape", "create_gather", "create_histogram",
    "create_cat", "create_join", "create_split",
)  # fmt: skip
_upstream_atomic_rmw = upstream.InterpreterBuilder.create_atomic_rmw
_upstream_atomic_cas = upstream.InterpreterBuilder.create_atomic_cas


def install() -> None:
    """Patch Triton's interpreter in this process."""
    upstream.InterpreterBuilder.create_atomic_rmw = _atomic_rmw
    upstream.InterpreterBuilder.create_atomic_cas = _atomic_cas
    upstream.InterpreterBuilder.create_barrier = _barrier
    for name in _EXCHANGING:
        setattr(upstream.InterpreterBuilder, name, _exchanging(getattr(upstream.InterpreterBuilder, name)))
    for operations in (upstream.ReduceOps, upstream.ScanOps):
        operations.apply_impl = _exchanging(operations.apply_impl)


class StuckError(Exception):
    """Raised where a program waits for one that cannot go on before it: another order of the programs may do."""


def interpret(
    function: Any,
    arguments: dict[str, Any],
    grid: tuple[int, int, int],
    programs: Any,
    may_be_stuck: bool = True,
    queue: "Queue | None" = None,
) -> None:
    """Run programs of a launch, by their indices. `function`: a DeviceFunction; `arguments`: already converted.

    Raises StuckError, unless it `may_be_stuck`: then the time limit ends it. `queue`: one that programs are to share.
    """
    upstream.interpreter_builder.set_grid_dim(*grid)
    RACES.start_launch()
    _LAUNCH.depth, _LAUNCH.may_be_stuck, _LAUNCH.queue = 0, may_be_stuck, queue
    LOAD_TURNS.queue = None if queue is None else (queue.address, math.prod(grid))
    _LAUNCH.all_changes, _LAUNCH.most_changes = Counter(), Counter()
    _LAUNCH.run, _LAUNCH.arguments, _LAUNCH.pending = function.fn, arguments, iter(programs)
    while _LAUNCH.run_next():
        pass


class Queue(NamedTuple):
    """An address at which programs count up, as for the number of their next tile."""

    address: int
    share: int
    """Changes that each makes if all make as many."""


def uneven_queue(programs: int) -> Queue | None:
    """Return an address where one program made far more changes than its share in the last launch, or None.

    In the interpreter the first program takes all tiles of a queue. On a GPU programs run side by side.
    """
    for address, changes in _LAUNCH.all_changes.items():
        share = -(-changes // programs)
        if _LAUNCH.most_changes[address] > _UNEVEN * share:
            return Queue(address, share)
    return None


@dataclasses.dataclass
class _Launch:
    """Programs of the current launch that have not started yet."""

    run: Any = None
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    pending: Iterator[tuple[int, int, int]] = dataclasses.field(default_factory=lambda: iter(()))
    polls: int = 0
    """Atomics in a row that changed nothing, and volatile loads that got the same as before."""
    loaded: dict[int, bytes] = dataclasses.field(default_factory=dict[int, bytes])
    """Last volatile loads of the program that runs, by address."""
    depth: int = 0
    """Programs that wait while another one runs within their atomic."""
    waits: int = 0
    """Times in a row that the program which runs has waited with none left to start."""
    may_be_stuck: bool = True
    queue: Queue | None = None
    """Another program runs when one has made its share of changes here."""
    changes: Counter[int] = dataclasses.field(default_factory=Counter[int])
    """Those by answered atomics of the program that runs, by address."""
    all_changes: Counter[int] = dataclasses.field(default_factory=Counter[int])
    """Those of all programs."""
    most_changes: Counter[int] = dataclasses.field(default_factory=Counter[int])
    """Those of the program with the most."""

    def run_next(self) -> bool:
        """Run the next program to its end; returns False if there is none."""
        index = next(self.pending, None)
        if index is None:
            return False
        upstream.interpreter_builder.grid_idx = ACCESS_LOG.program = index
        RACES.start_program(index)
        REREADS.begin(1)
        self.polls = self.waits = 0
        self.loaded, self.changes = {}, Counter()
        self.run(**self.arguments)
        self.all_changes += self.changes
        self.most_changes |= self.changes
        OPERATION_LOG.end_program(ACCESS_LOG.l2_bytes)
        LOAD_TURNS.end()
        return True

    def poll(self, is_idle: bool) -> None:
        """Count an atomic of the program that runs. One that waits for others lets them run, within its atomic."""
        self.polls = self.polls + 1 if is_idle else 0
        self.waits = self.waits if is_idle else 0
        if self.polls < _PATIENCE or not RACES.is_answered:
            return
        has_run = self.run_another()
        self.waits = 0 if has_run else self.waits + 1
        if self.depth and self.waits > _LONG and not self.may_be_stuck:
            raise StuckError
        self.polls = 0

    def hand_over(self, address: int) -> None:
        """Let another program run before an atomic, if the one that runs has had its share of changes there."""
        queue = self.queue
        if queue is not None and address == queue.address and self.changes[address] >= queue.share:
            self.run_another()

    def run_another(self) -> bool:
        """Run the next program within the one that runs; returns False if there is none."""
        index, state, reads = ACCESS_LOG.program, RACES.suspended(), REREADS.suspend()
        loops, turns, changes = OWN_STORES.suspend(), LOAD_TURNS.suspend(), self.changes
        done = OPERATION_LOG.suspend(ACCESS_LOG.l2_bytes)
        self.depth += 1
        try:
            has_run = self.run_next()
        except RecursionError as error:
            if self.may_be_stuck:
                raise
            raise StuckError from error
        self.depth -= 1
        upstream.interpreter_builder.grid_idx = ACCESS_LOG.program = index
        RACES.resume(state)
        REREADS.resume(reads)
        OWN_STORES.resume(loops)
        LOAD_TURNS.resume(turns)
        OPERATION_LOG.resume(done, ACCESS_LOG.l2_bytes)
        self.changes = changes
        return has_run


_LAUNCH = _Launch()
_AS_INTEGERS = {4: tl.uint32, 8: tl.uint64}
"""Integer types by their bytes."""


def _exchanging(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation for which lanes pass values to one another, as it may need a barrier of the program."""

    def exchanged(*operands: Any, **named: Any) -> Any:
        RACES.exchange()
        return compute(*operands, **named)

    return exchanged


def _atomic_rmw(self: Any, rmw_op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
    def update() -> Any:
        if rmw_op != _ir.ATOMIC_OP.XCHG or val.data.dtype.kind != "f":
            return _upstream_atomic_rmw(self, rmw_op, ptr, val, mask, sem, scope)
        # Upstream exchanges integers alone: the bits of a float are exchanged as those of one.
        bits = upstream.TensorHandle(val.data.view(f"u{val.data.itemsize}"), _AS_INTEGERS[val.data.itemsize])
        before = _upstream_atomic_rmw(self, rmw_op, ptr, bits, mask, sem, scope)
        return upstream.TensorHandle(before.data.view(val.data.dtype), val.dtype.scalar)

    return _ordered(ptr, mask.data, sem, scope, update)


def _atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
    return _ordered(ptr, None, sem, scope, lambda: _upstream_atomic_cas(self, ptr, cmp, val, sem, scope))


def _ordered(ptr: Any, mask: Any, sem: Any, scope: Any, update: Callable[[], Any]) -> Any:
    """Carry out an atomic. One on a single address orders programs, as far as its semantics say."""
    count_atomics(ptr.data, mask, max(1, ptr.get_element_ty().primitive_bitwidth // 8))
    orders = scope != _ir.MEM_SYNC_SCOPE.CTA
    if ptr.data.size != 1 or (mask is not None and not mask.all()):
        record_access(ptr, mask, reads=True, writes=True, is_for_all=orders)
        return update()
    address = int(ptr.data.reshape(()))
    _LAUNCH.hand_over(address)
    # before it acquires: an atomic does not order itself
    record_access(ptr, mask, reads=True, writes=True, is_for_all=orders)
    if orders and sem in _ACQUIRES:
        RACES.acquire(address)
    before = update()
    is_idle = _content(ptr) == before.data.tobytes()
    before.marks = frozenset((LOAD_TURNS.release(address, is_idle),))
    if orders and sem in _RELEASES:
        RACES.release(address)
    if not is_idle and RACES.is_answered:
        _LAUNCH.changes[address] += 1
    _LAUNCH.poll(is_idle=is_idle)
    return before


def note_volatile(ptr: Any, loaded: Any) -> None:
    """Note a volatile load of one address: a program that gets the same there again waits for another one's store."""
    if ptr.data.size != 1:
        return
    address, content = int(ptr.data.reshape(())), loaded.tobytes()
    is_idle = _LAUNCH.loaded.get(address) == content
    if address not in _LAUNCH.loaded and len(_LAUNCH.loaded) == _FLAGS:
        _LAUNCH.loaded.clear()
    _LAUNCH.loaded[address] = content
    _LAUNCH.poll(is_idle)


def _content(ptr: Any) -> bytes:
    dtype = upstream._get_np_dtype(ptr.get_element_ty())
    everywhere = np.ones_like(ptr.data, dtype=bool)
    return upstream._interpreter.load(ptr.data, everywhere, np.zeros_like(ptr.data, dtype=dtype), dtype).tobytes()


def _barrier(self: Any) -> None:
    RACES.barrier()
    OWN_STORES.keep_in_order()
    OPERATION_LOG.counts["reduction"] += BARRIER_WAITS
