"""Interpreter process: interprets many programs of a launch at once, with an axis of programs in NumPy's arrays.

A program of a small kernel takes NumPy a tenth of the time that Python takes to get there. Programs whose values differ
but whose operations are the same share that time: a launch of 16,384 programs calls each of its operations some 60
times. All else stays as it is: what is counted, and what is checked at each access (`batched_accesses`).

Whatever cannot be done in step raises UnbatchableError: branches that depend on the program, loops of other lengths,
atomics, block pointers, scans, anything that is not named here. The launch then starts again, one program after the
other.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from kernels_eval.interpreter.batched_accesses import BatchedAccesses, UnbatchableError
from kernels_eval.interpreter.load_turns import LOAD_TURNS, deepened, passed_on
from kernels_eval.interpreter.operation_log import OPERATION_LOG, Counts
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.triton_patches import operation_counts
from kernels_eval.interpreter.triton_patches.arithmetic import held_by_a_thread, sum_in_own_type
from kernels_eval.interpreter.triton_patches.batch_handle import BatchHandle, spread
from kernels_eval.interpreter.triton_patches.names import upstream
from kernels_eval.interpreter.triton_patches.open_order import reshaped
from kernels_eval.interpreter.triton_patches.programs import BARRIER_WAITS
from kernels_eval.interpreter.triton_patches.undefined_lanes import undefined

Program = tuple[int, int, int]
_Handle: Any = upstream.TensorHandle
_builder: Any = upstream.InterpreterBuilder
_REDUCTIONS: dict[Any, Callable[..., Any]] = {
    tl.standard._elementwise_max: np.nanmax,  # pyright: ignore[reportPrivateUsage]
    tl.standard._elementwise_min: np.nanmin,  # pyright: ignore[reportPrivateUsage]
    tl.standard._sum_combine: np.sum,  # pyright: ignore[reportPrivateUsage]
}
"""Reductions that upstream leaves to NumPy too."""
_ROUNDED = (tl.bfloat16, tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15)
"""Types that are kept as their bits."""


class BatchedBuilder(_builder):
    """Operations on tensors of many programs. Those on values that all of them share are upstream's, done once."""

    def __init__(self) -> None:
        super().__init__()
        self.options = upstream.interpreter_builder.options
        self.programs = np.zeros((0, 3), np.int32)
        """Index in the grid of each program of the batch."""
        self.accesses = BatchedAccesses()
        self.counts = Counts()
        """Operations of the batch's programs together; those of shared values are in OPERATION_LOG, once."""
        self.widest = 1
        """Most elements of a value in one program."""

    def made(self, lanes: np.ndarray[Any, Any], dtype: Any) -> BatchHandle:
        """Return a value of the batch."""
        self.widest = max(self.widest, lanes.size // len(self.programs))
        return BatchHandle(lanes, dtype)

    def in_all(self, handle: Any, sizes: tuple[int, ...]) -> Any:
        """Return an array of a value, in each program, as if it had been broadcast to `sizes`."""
        if type(handle) is BatchHandle:
            return handle.lanes if handle.shape == sizes else spread(handle, sizes).lanes
        return np.broadcast_to(handle.data, (len(self.programs), *sizes))

    def create_get_program_id(self, axis: int) -> Any:
        """Return the program's index along an axis."""
        if self.grid_dim[axis] == 1:
            return _Handle(np.zeros(1, np.int32), tl.int32)
        return self.made(self.programs[:, axis : axis + 1], tl.int32)

    def create_load(self, ptr: Any, *hints: Any, **named: Any) -> Any:
        """Load without a mask."""
        return self._load(ptr, None, None, _is_volatile(hints, named))

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *hints: Any, **named: Any) -> Any:
        """Load the lanes that are not masked off."""
        return self._load(ptrs, mask, other, _is_volatile(hints, named))

    def create_store(self, ptr: Any, val: Any, *hints: Any) -> None:
        """Store without a mask."""
        self.create_masked_store(ptr, val, None)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *hints: Any, **named: Any) -> None:
        """Store the lanes that are not masked off."""
        sizes = _sizes(ptrs)
        lanes = None if mask is None else self.in_all(mask, sizes).astype(bool, copy=False)
        values = self.in_all(value, sizes).astype(_element(ptrs), copy=False)
        self.accesses.store(self.in_all(ptrs, sizes), lanes, values)

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        """Fill a block with a scalar."""
        if type(arg) is not BatchHandle:
            return super().create_splat(ret_ty, arg)
        OWN_STORES.spread(arg)
        return spread(arg, tuple(int(size) for size in ret_ty.shape))

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        """Add an axis of one element."""
        if type(arg) is not BatchHandle:
            return super().create_expand_dims(arg, axis)
        return deepened(self.made(np.expand_dims(arg.lanes, axis + 1), arg.dtype.scalar), (arg,))

    def create_broadcast(self, arg: Any, shape: Any) -> Any:
        """Repeat a block along its axes of one element."""
        if type(arg) is not BatchHandle:
            return super().create_broadcast(arg, shape)
        return spread(arg, tuple(int(size) for size in shape))

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: bool) -> Any:
        """Give a block another shape."""
        if type(arg) is not BatchHandle:
            return super().create_reshape(arg, shape, allow_reorder)
        sizes = tuple(int(size) for size in shape)
        return self.made(reshaped(arg.lanes, arg.shape, sizes, bool(allow_reorder)), arg.dtype.scalar)

    def create_trans(self, arg: Any, perm: Any) -> Any:
        """Exchange axes."""
        if type(arg) is not BatchHandle:
            return super().create_trans(arg, perm)
        return self.made(np.transpose(arg.lanes, (0, *(axis + 1 for axis in perm))), arg.dtype.scalar)

    def create_barrier(self) -> None:
        """Count it alone: no lane may touch what another one wrote, before a barrier or after it."""
        OWN_STORES.keep_in_order()
        OPERATION_LOG.counts["reduction"] += BARRIER_WAITS

    def create_atomic_cas(self, *operands: Any) -> Any:
        """Refuse: atomics order programs."""
        raise UnbatchableError("atomics are carried out one after the other")

    def create_atomic_rmw(self, *operands: Any) -> Any:
        """Refuse: atomics order programs."""
        raise UnbatchableError("atomics are carried out one after the other")

    def create_bitcast(self, src: Any, dst_type: Any) -> Any:
        """Read a value's bits as another type; pointers to elements of another size are refused."""
        if src.dtype.scalar.is_ptr() or dst_type.scalar.is_ptr():
            raise UnbatchableError("a pointer of another type")
        if type(src) is not BatchHandle:
            return super().create_bitcast(src, dst_type)
        return self.made(src.lanes.view(upstream._get_np_dtype(dst_type)), dst_type.scalar)

    def create_int_to_ptr(self, src: Any, dst_type: Any) -> Any:
        """Refuse: such a pointer need not be aligned."""
        raise UnbatchableError("a pointer made of a number")

    def create_inline_asm(self, text: str, constraints: str, handles: Any, types: Any, is_pure: bool, pack: int) -> Any:
        """Refuse if its operands differ: `pack` lanes of a program go together, and none of another one."""
        if any(type(handle) is BatchHandle for handle in handles):
            raise UnbatchableError("inline assembly")
        return super().create_inline_asm(text, constraints, handles, types, is_pure, pack)

    def create_descriptor_store(self, *operands: Any) -> Any:
        """Refuse: its pointers are not made here."""
        raise UnbatchableError("descriptors")

    create_tensor_pointer_store = create_descriptor_scatter = create_descriptor_store
    create_tensor_pointer_load = create_descriptor_load = create_descriptor_gather = create_descriptor_store

    def _load(self, ptrs: Any, mask: Any, other: Any, is_volatile: bool) -> Any:
        if is_volatile:
            raise UnbatchableError("a load that no cache may answer")
        OPERATION_LOG.count_wait("access", _sizes(ptrs))
        dtype = ptrs.get_element_ty()
        if not any(type(operand) is BatchHandle for operand in (ptrs, mask, other)):
            lanes = None if mask is None else np.asarray(mask.data, dtype=bool)
            rest = (
                undefined(ptrs.data.shape, dtype, _element(ptrs), lanes)
                if other is None
                else other.data.astype(_element(ptrs), copy=False)
            )
            loaded = _Handle(self.accesses.load_shared(ptrs.data, lanes, rest), dtype)
            every = None if lanes is None else np.broadcast_to(lanes, ptrs.data.shape).reshape(1, -1)
            LOAD_TURNS.follow(loaded, LOAD_TURNS.load(ptrs.data.reshape(1, -1), every, rest.itemsize), ptrs, mask)
            return loaded
        sizes = _sizes(ptrs)
        addresses = self.in_all(ptrs, sizes)
        lanes = None if mask is None else self.in_all(mask, sizes).astype(bool, copy=False)
        rest = undefined(addresses.shape, dtype, _element(ptrs), lanes) if other is None else self.in_all(other, sizes)
        found = self.made(self.accesses.load(addresses, lanes, rest.astype(_element(ptrs), copy=False)), dtype)
        each = None if lanes is None else lanes.reshape(len(addresses), -1)
        loads = LOAD_TURNS.load(addresses.reshape(len(addresses), -1), each, found.lanes.itemsize)
        LOAD_TURNS.follow(found, loads, ptrs, mask)
        OWN_STORES.load(found, math.prod(sizes), found.lanes.itemsize, ptrs, mask)
        return found


def install() -> None:
    """Prepare Triton's interpreter in this process, once, after all other patches."""
    for name in operation_counts.ELEMENTWISE:
        setattr(BatchedBuilder, name, _in_step(getattr(_builder, name)))
    for name, operand in (("create_addptr", 1), ("create_int_cast", 0)):
        setattr(BatchedBuilder, name, _noting_index(getattr(BatchedBuilder, name), operand))
    for name in ("create_trans", "create_reshape", "create_bitcast"):
        setattr(BatchedBuilder, name, operation_counts.passing_on(getattr(BatchedBuilder, name)))
    BatchedBuilder.create_dot = _in_step(_builder.create_dot)  # pyright: ignore[reportAttributeAccessIssue]
    upstream.ReduceOps.apply_impl = _reduction(upstream.ReduceOps.apply_impl)


def _sizes(handle: Any) -> tuple[int, ...]:
    return handle.shape if type(handle) is BatchHandle else handle.data.shape


def _element(pointers: Any) -> Any:
    """Return NumPy's type of what pointers point to."""
    return upstream._get_np_dtype(pointers.get_element_ty())


def _is_volatile(hints: tuple[Any, ...], named: dict[str, Any]) -> bool:
    return bool(named.get("is_volatile", hints[-1] if hints else False))


def _in_step(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation on each element, or a product of matrices, of all programs."""

    def computed(self: Any, *operands: Any, **named: Any) -> Any:
        if not any(type(operand) is BatchHandle for operand in operands):
            return compute(self, *operands, **named)
        plain = [_Handle(one.lanes, one.dtype) if type(one) is BatchHandle else one for one in operands]
        once, threads = OPERATION_LOG.counts, OPERATION_LOG.threads
        OPERATION_LOG.counts, OPERATION_LOG.threads = self.counts, threads * len(self.programs)
        OPERATION_LOG.axes = 1
        try:
            result = compute(self, *plain, **named)
        finally:
            OPERATION_LOG.counts, OPERATION_LOG.threads, OPERATION_LOG.axes = once, threads, 0
        return passed_on(self.made(result.data, result.dtype), operands)

    return computed


def _noting_index(compute: Callable[..., Any], operand: int) -> Callable[..., Any]:
    """Note the ends of each program's 32-bit integers that are added to a pointer, or widened."""

    def noting(self: Any, *operands: Any, **named: Any) -> Any:
        result = compute(self, *operands, **named)
        index = operands[operand]
        if (
            type(index) is BatchHandle
            and index.lanes.dtype == np.int32
            and result.lanes.itemsize > index.lanes.itemsize
        ):
            rows = index.lanes.reshape(len(self.programs), -1)
            largest = max(int(rows[:, 0].max()), int(rows[:, -1].max()))
            OPERATION_LOG.largest_index = max(OPERATION_LOG.largest_index, largest)
        return result

    return noting


def _reduction(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction that takes values of a batch too."""

    def reduced(self: Any, inputs: Any) -> Any:
        handle = inputs[0].handle
        if type(handle) is not BatchHandle:
            return reduce(self, inputs)
        function = _REDUCTIONS.get(self.combine_fn)
        if function is None or len(inputs) > 1 or handle.dtype in _ROUNDED:
            raise UnbatchableError("a reduction by a function of its own")
        lanes, dtype = handle.lanes, inputs[0].dtype
        operation_counts.count_reduction(handle.shape, self.axis, lanes.itemsize)
        if function is np.sum and lanes.dtype == np.float16:
            function = _sum_of_halves(handle.shape, self.axis)
        if self.axis is None:
            found = function(lanes.reshape(lanes.shape[0], -1), axis=1)
            sizes = (1,) * len(handle.shape) if self.keep_dims else ()
        else:
            found = function(lanes, axis=self.axis % len(handle.shape) + 1, keepdims=self.keep_dims)
            sizes = found.shape[1:]
        found = found.astype(upstream._get_np_dtype(dtype), copy=False).reshape((lanes.shape[0], *(sizes or (1,))))
        values = upstream.interpreter_semantic.builder.made(found, dtype.scalar)
        return [tl.tensor(values, tl.block_type(dtype, list(sizes)) if sizes else dtype)]

    return reduced


def _sum_of_halves(shape: tuple[int, ...], axis: int | None) -> Callable[..., Any]:
    """Return a sum of float16 values in that type, for blocks of a shape, along an axis or of all elements."""
    is_last = axis is None or axis % len(shape) == len(shape) - 1
    size = math.prod(shape)

    def total(lanes: Any, axis: int, keepdims: bool = False) -> Any:
        moved = np.moveaxis(lanes, axis, -1)
        found = sum_in_own_type(moved, held_by_a_thread(moved.shape[-1], size, is_last))
        return np.expand_dims(found, axis) if keepdims else found

    return total
