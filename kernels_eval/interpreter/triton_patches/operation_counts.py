"""Interpreter process: counts what each operation of a kernel costs, by the unit that executes it.

Installed over the operations of Triton's interpreter after all other patches, so that it sees each operation once. A
block of fewer elements than its program has threads costs as much as one of that many: the threads repeat it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels_eval.cost.instructions import operations_of, product_operation
from kernels_eval.cost.launch import Operation
from kernels_eval.interpreter.load_turns import LOAD_TURNS, deepened, passed_on
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.triton_patches.libdevice import InterpretedLibdevice
from kernels_eval.interpreter.triton_patches.names import upstream

_WIDE = 8
_NARROW_INDEX = np.dtype(np.int32)
_LANES = 32
_VECTOR = 4
"""Elements that a thread loads at once."""
_NAMES = {
    "create_fadd": "add", "create_fsub": "sub", "create_fmul": "mul", "create_fma": "fma", "create_fdiv": "div",
    "create_precise_divf": "div_rn", "create_frem": "fmod", "create_minimumf": "min", "create_minnumf": "min",
    "create_maximumf": "max", "create_maxnumf": "max", "create_clampf": "clamp", "create_select": "select",
    "create_fabs": "abs", "create_floor": "floor", "create_ceil": "ceil", "create_exp": "exp", "create_exp2": "exp2",
    "create_log": "log", "create_log2": "log2", "create_sin": "sin", "create_cos": "cos", "create_sqrt": "sqrt",
    "create_precise_sqrt": "sqrt_rn", "create_rsqrt": "rsqrt", "create_erf": "erf",
    **{f"create_fcmp{kind}": "compare" for kind in ("OLT", "OGT", "OLE", "OGE", "OEQ", "ONE", "ULT", "UGT", "ULE",
                                                    "UGE", "UEQ", "UNE")},
    **{f"create_{kind}": "cast" for kind in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc",
                                             "fp_to_fp")},
    **{f"create_{kind}": "bits" for kind in ("shl", "lshr", "ashr", "xor", "mul", "minsi", "minui", "maxsi", "maxui")},
    **{f"create_{kind}": "divide_integer" for kind in ("sdiv", "udiv", "srem", "urem")},
    "create_umulhi": "multiply_high", "create_iabs": "abs",
}  # fmt: skip
"""Operations of the interpreter's builder, and their names in kernels_eval.cost.instructions."""
_ADDRESSES = (
    "create_add", "create_sub", "create_and", "create_or", "create_addptr", "create_int_cast",
    *(f"create_icmp{kind}" for kind in ("SLE", "SLT", "SGE", "SGT", "ULE", "ULT", "UGE", "UGT", "EQ", "NE")),
)  # fmt: skip
ELEMENTWISE = (*_NAMES, *_ADDRESSES)
"""Operations that compute each element of their result from the elements at its place."""
_ADDRESS: tuple[tuple[Operation, float], ...] = (("integer", 1.0),)
_WIDE_ADDRESS: tuple[tuple[Operation, float], ...] = (("integer", 2.0),)
_ATOMICS = ("create_atomic_rmw", "create_atomic_cas")
_REARRANGING = ("create_trans", "create_reshape", "create_bitcast")


def install() -> None:
    """Patch Triton's interpreter in this process, once, after the other patches."""
    builder = upstream.InterpreterBuilder
    for name, function in _NAMES.items():
        setattr(builder, name, _counted(getattr(builder, name), function))
    for name in _ADDRESSES:
        setattr(builder, name, _counted_as_address(getattr(builder, name)))
    builder.create_addptr = _noting_index(builder.create_addptr, operand=1)
    builder.create_int_cast = _noting_index(builder.create_int_cast, operand=0)
    builder.create_masked_load = _counted_as_load(builder.create_masked_load)
    for name in _ATOMICS:
        setattr(builder, name, _counted_as_access(getattr(builder, name)))
    for name in _REARRANGING:
        setattr(builder, name, passing_on(getattr(builder, name)))
    for operations in (upstream.ReduceOps, upstream.ScanOps):
        operations.apply_impl = _counted_reduction(operations.apply_impl, operations is upstream.ScanOps)
    builder.create_gather = _counted_gather(builder.create_gather)
    builder.create_histogram = _counted_histogram(builder.create_histogram)
    for name, function in list(vars(InterpretedLibdevice).items()):
        if isinstance(function, staticmethod):
            setattr(InterpretedLibdevice, name, staticmethod(_counted_function(function.__func__, name)))


def count_product(left: Any, right: Any, input_precision: Any, allow_tf32: Any) -> None:
    """Count one `tl.dot`, in the precision in which the compiled kernel computes it."""
    precision = getattr(input_precision, "value", input_precision)
    if precision is None:
        precision = "ieee" if getattr(allow_tf32, "value", allow_tf32) is False else "tf32"
    unit, each = product_operation(str(left.dtype.scalar), str(precision).lower())
    shape, last = left.type.shape, right.type.shape[-1]
    OPERATION_LOG.counts[unit] += each * math.prod(map(int, shape)) * int(last)
    LOAD_TURNS.multiply(left.handle, right.handle)
    OWN_STORES.multiply(left.handle, right.handle)


def count_reduction(shape: tuple[int, ...], axis: int | None, itemsize: int) -> None:
    """Count a reduction by one of NumPy's functions, along an axis or, if it is None, of all elements."""
    size = math.prod(shape)
    OPERATION_LOG.counts["fp64" if itemsize == _WIDE else "fp32"] += max(size, OPERATION_LOG.threads)
    _count_exchanges(shape, size if axis is None else shape[axis], False, 1)


def _count_exchanges(shape: tuple[int, ...], along: int, is_scan: bool, inputs: int) -> None:
    """Count what lanes exchange in a reduction of a block, of `along` elements each."""
    size = math.prod(shape)
    lanes = min(OPERATION_LOG.threads, max(1, along // _VECTOR))
    stages = math.ceil(math.log2(min(lanes, _LANES))) if lanes > 1 else 0
    OPERATION_LOG.counts["exchange"] += (2 if is_scan else 1) * inputs * max(1, size // max(along, 1)) * lanes * stages
    OPERATION_LOG.count_wait("reduction", shape)


def _counted_gather(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Count a store and a load of shared memory for each element, and the barrier between them."""

    def counted(self: Any, source: Any, indices: Any, axis: int) -> Any:
        OPERATION_LOG.counts["exchange"] += max(source.data.size, OPERATION_LOG.threads)
        OPERATION_LOG.counts["exchange"] += max(indices.data.size, OPERATION_LOG.threads)
        OPERATION_LOG.counts["reduction"] += 1
        return compute(self, source, indices, axis)

    return counted


def _counted_histogram(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Count a vote of the warp for each element and bit of a bin's number, and a barrier."""

    def counted(self: Any, values: Any, bins: int, mask: Any) -> Any:
        lanes = max(values.data.size, OPERATION_LOG.threads)
        OPERATION_LOG.counts["exchange"] += math.ceil(math.log2(max(bins, 2))) * lanes
        OPERATION_LOG.counts["reduction"] += 1
        return compute(self, values, bins, mask)

    return counted


def _counted(compute: Callable[..., Any], name: str) -> Callable[..., Any]:
    narrow = operations_of(name)
    wide: tuple[tuple[Operation, float], ...] = operations_of(name, is_double=True)
    if name in ("bits", "multiply_high", "divide_integer", "cast", "select"):
        wide = tuple((unit, 2 * count) for unit, count in narrow)

    def counted(self: Any, first: Any, *rest: Any) -> Any:
        result = compute(self, first, *rest)
        OPERATION_LOG.count(wide if first.data.itemsize == _WIDE else narrow, result.data)
        return passed_on(result, (first, *rest))

    return counted


def _counted_as_address(compute: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, first: Any, *rest: Any) -> Any:
        result = compute(self, first, *rest)
        OPERATION_LOG.count(_WIDE_ADDRESS if result.data.itemsize == _WIDE else _ADDRESS, result.data)
        return deepened(result, (first, *rest))

    return counted


def _noting_index(compute: Callable[..., Any], operand: int) -> Callable[..., Any]:
    """Note the ends of 32-bit integers that are added to a pointer, or widened, as they are before that."""

    def noting(self: Any, *operands: Any) -> Any:
        result = compute(self, *operands)
        index = operands[operand].data
        if index.dtype == _NARROW_INDEX and result.data.itemsize == _WIDE:
            last = max(int(index.flat[-1]), int(index.flat[0]))
            OPERATION_LOG.largest_index = max(OPERATION_LOG.largest_index, last)
        return result

    return noting


def passing_on(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation whose result comes from the loads of its first operand."""

    def passing(self: Any, first: Any, *rest: Any, **named: Any) -> Any:
        return passed_on(compute(self, first, *rest, **named), (first,))

    return passing


def _counted_as_load(compute: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, ptrs: Any, mask: Any, *operands: Any, **named: Any) -> Any:
        result = compute(self, ptrs, mask, *operands, **named)
        OPERATION_LOG.count_wait("access", result.data.shape)
        lanes = None if mask is None else np.broadcast_to(mask.data, ptrs.data.shape).reshape(1, -1)
        loads = LOAD_TURNS.load(ptrs.data.reshape(1, -1), lanes, result.data.itemsize)
        LOAD_TURNS.follow(result, loads, ptrs, mask)
        OWN_STORES.load(result, result.data.size, result.data.itemsize, ptrs, mask)
        return result

    return counted


def _counted_as_access(compute: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, *operands: Any, **named: Any) -> Any:
        result = compute(self, *operands, **named)
        OPERATION_LOG.count_wait("access", result.data.shape)
        return result

    return counted


def _counted_reduction(reduce: Callable[..., Any], is_scan: bool) -> Callable[..., Any]:
    """Count exchanges between lanes, and the elements themselves where no function of the kernel combines them."""

    def counted(self: Any, inputs: Any) -> Any:
        counts = OPERATION_LOG.counts
        before = counts["fp32"] + counts["alu"] + counts["fp64"] + counts["integer"]
        result = reduce(self, inputs)
        block = inputs[0].handle.data
        if counts["fp32"] + counts["alu"] + counts["fp64"] + counts["integer"] == before:
            counts["fp64" if block.itemsize == _WIDE else "fp32"] += max(block.size, OPERATION_LOG.threads)
        _count_exchanges(block.shape, block.size if self.axis is None else block.shape[self.axis], is_scan, len(inputs))
        return result

    return counted


def _counted_function(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Count a function of libdevice."""
    narrow, wide = operations_of(name), operations_of(name, is_double=True)

    def counted(*arguments: Any) -> Any:
        result = function(*arguments)
        OPERATION_LOG.count(wide if result.handle.data.itemsize == _WIDE else narrow, result.handle.data)
        return result

    return counted
