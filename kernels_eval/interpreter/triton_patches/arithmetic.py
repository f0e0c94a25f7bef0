"""Interpreter process: arithmetic that Triton's interpreter lacks: bfloat16, TF32, unsigned, reductions by blocks.

The interpreter keeps bfloat16 as its bits, and upstream adds, compares and multiplies those bits. Here operands are
widened to float32, and the result is rounded to bfloat16 after each operation, as in the compiled kernel. Products in
TF32 get operands of TF32's ten mantissa bits. Floats become integers as on NVIDIA's GPUs, and the upper half
of a product is that of unsigned operands, whatever their type.

Upstream calls the function of `tl.reduce` and `tl.associative_scan` once for each element, on scalars, from the first
to the last. The compiled kernel does not: its function must be associative, and that of a reduction commutative too,
since lanes of a warp are combined with those 16, 8, 4, 2 and 1 farther. Here it is called on whole blocks, the first
half with the second half of them, or neighbours for a scan, once for each level of a tree.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.triton_patches.names import upstream

_BFLOAT16: Any = tl.bfloat16
_Handle: Any = upstream.TensorHandle
_TF32_BITS = np.uint32(0xFFFFE000)
_HALF = np.uint32(0x7FFF)
_ONE = np.uint32(1)
_QUIET = np.uint16(0x7FC0)
_Blocks = list[np.ndarray[Any, Any]]
_PROPAGATED: Any = upstream._ir.PROPAGATE_NAN.ALL
_VECTOR = 8
"""Elements of 16 bits that a thread loads at once."""
_PLACES: Any = (tl.standard._argmin_combine_tie_break_left, tl.standard._argmax_combine_tie_break_left)  # pyright: ignore[reportPrivateUsage]
_WIDENED = ("binary_op", "unary_op", "create_clampf", "create_fma", "create_rsqrt", "create_dot")
"""Operations of the interpreter's builder that compute; the last operand has the result's type."""


def install() -> None:
    """Patch Triton's interpreter in this process. Call it after anything that replaces these operations."""
    builder = upstream.InterpreterBuilder
    builder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    builder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
    builder.create_clampf = _clamp
    for name in _WIDENED:
        setattr(builder, name, _in_float32(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    builder.create_erf = _erf
    builder.create_fp_to_si = builder.create_fp_to_ui = _to_integer
    builder.create_umulhi = _of_unsigned(builder.create_umulhi)
    builder.create_add = _exclusive_of_bits(builder.create_add)
    builder.create_sub = _exclusive_of_bits(builder.create_sub)
    builder.create_histogram = _by_low_bits(builder.create_histogram)
    builder.create_idiv = _divided
    for name in ("create_srem", "create_urem"):
        setattr(builder, name, _remainder)
    upstream.ReduceOps.apply_impl = _reduction(upstream.ReduceOps.apply_impl)
    builder.get_bf16 = lambda self, value: _narrowed(self.get_fp32(value))
    upstream.ReduceOps.generic_reduce = _reduced
    upstream.ScanOps.generic_scan = _scanned


def to_tf32(values: Any) -> Any:
    """Cut float32 values to TF32's mantissa, as tensor cores do."""
    return (np.ascontiguousarray(values).view(np.uint32) & _TF32_BITS).view(np.float32)


def bfloat16_terms(operand: Any, count: int) -> list[Any]:
    """Return a float32 operand as a sum of values in bfloat16, each the nearest to what those before it leave."""
    terms: list[Any] = []
    rest = operand
    for _ in range(count):
        terms.append(_widened(_narrowed(rest)))
        left = np.zeros_like(rest.data)
        np.subtract(rest.data, terms[-1].data, out=left, where=np.isfinite(operand.data))
        rest = upstream.TensorHandle(left, tl.float32)
    return terms


def _in_float32(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that takes bfloat16 too."""

    def computed(self: Any, *operands: Any) -> Any:
        for value in operands:
            if isinstance(value, _Handle) and value.dtype.scalar is _BFLOAT16:
                break
        else:
            return compute(self, *operands)
        types = [value.dtype.scalar for value in operands if isinstance(value, _Handle)]
        result = compute(self, *map(_widened, operands))
        return _narrowed(result) if types[-1] is _BFLOAT16 and result.data.dtype == np.float32 else result

    return computed


def _cast(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Return a conversion from and to bfloat16 by way of float32."""

    def converted(self: Any, value: Any, wanted: Any) -> Any:
        if value.dtype.scalar is _BFLOAT16:
            value = _widened(value)
        if wanted.scalar is not _BFLOAT16:
            return convert(self, value, wanted)
        return _narrowed(convert(self, value, tl.float32))

    return converted


def _erf(self: Any, value: Any) -> Any:
    """Compute in float64, as upstream does one element at a time, and round."""
    wide = torch.from_numpy(value.data.astype(np.float64))
    return upstream.TensorHandle(torch.erf(wide).numpy().astype(value.data.dtype), value.dtype.scalar)


def _to_integer(self: Any, value: Any, wanted: Any) -> Any:
    """Convert floats: towards zero, saturating at 16 bits or at the type's width if that is larger.

    NaN becomes zero, and the highest bit alone where the float or the integer has 64 bits.
    """
    numbers, narrow = _widened(value).data, upstream._get_np_dtype(wanted)
    wide = np.dtype(f"{narrow.kind}{max(narrow.itemsize, 2)}")
    limits = np.iinfo(wide)
    with np.errstate(all="ignore"):
        if ((numbers > limits.min) & (numbers < limits.max)).all():
            return upstream.TensorHandle(numbers.astype(wide).astype(narrow), wanted.scalar)
        inside = np.clip(np.trunc(numbers.astype(np.longdouble)), limits.min, limits.max)
        is_long = 8 in (value.data.itemsize, wide.itemsize)
        of_nan = np.array(1 << limits.bits - 1 if is_long else 0, np.uint64).astype(wide)
        found = np.where(np.isnan(inside), of_nan, np.nan_to_num(inside).astype(wide))
    return upstream.TensorHandle(found.astype(narrow), wanted.scalar)


def _of_unsigned(compute: Callable[..., Any]) -> Callable[..., Any]:
    def computed(self: Any, *operands: Any) -> Any:
        signed = operands[0].data.dtype
        views = [upstream.TensorHandle(each.data.view(f"u{signed.name.lstrip('u')}"), each.dtype) for each in operands]
        result = compute(self, *views)
        return upstream.TensorHandle(result.data.view(signed), result.dtype)

    return computed


def _clamp(self: Any, value: Any, least: Any, most: Any, propagate_nan: Any) -> Any:
    """Limit numbers; NaN becomes the lower limit unless the kernel asks for it to stay."""
    greater, less = (np.maximum, np.minimum) if propagate_nan == _PROPAGATED else (np.fmax, np.fmin)
    return upstream.TensorHandle(less(greater(value.data, least.data), most.data), value.dtype.scalar)


def _divided(self: Any, left: Any, right: Any) -> Any:
    """Divide integers towards zero; a quotient by zero has all bits, as NVIDIA's GPUs give it. NumPy's is zero."""
    values, divisor = left.data, right.data
    is_zero = divisor == 0
    if is_zero.any():
        divisor = np.where(is_zero, np.ones_like(divisor), divisor)
    found = (values - np.fmod(values, divisor)) // divisor
    if is_zero.any():
        found = np.where(is_zero, ~np.zeros_like(found), found)
    return upstream.TensorHandle(found, left.dtype.scalar)


def _remainder(self: Any, left: Any, right: Any) -> Any:
    """Return what a division towards zero leaves; a division by zero leaves the dividend. NumPy's leaves zero."""
    found = self.binary_op(left, right, np.fmod)
    is_zero = right.data == 0
    if is_zero.any():
        found.data = np.where(is_zero, left.data, found.data).astype(found.data.dtype)
    return found


def _exclusive_of_bits(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sum or difference that is exclusive or for comparisons' results, which have one bit; NumPy's is or."""

    def computed(self: Any, left: Any, right: Any) -> Any:
        if left.data.dtype == np.bool_ == right.data.dtype:
            return self.binary_op(left, right, np.bitwise_xor)
        return compute(self, left, right)

    return computed


def _by_low_bits(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a histogram that counts a value beyond the bins by its low bits, as the compiled kernel does."""

    def computed(self: Any, values: Any, bins: int, mask: Any) -> Any:
        low = (values.data.astype(np.int64) & (bins - 1)).astype(values.data.dtype)
        return compute(self, upstream.TensorHandle(low, values.dtype), bins, mask)

    return computed


def _reduction(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction whose operands of 16 bits are combined in their own type, and NaN as comparisons treat it.

    Upstream adds numbers of 16 bits in a wider type, and finds the place of a NaN.
    """

    def reduced(self: Any, inputs: Any) -> Any:
        is_narrow = any(value.dtype in (_BFLOAT16, tl.float16) for value in inputs)
        is_place = self.combine_fn in _PLACES
        if (is_narrow and not is_place) or (is_place and _has_nan(inputs[0])):
            return _reduced(self, inputs)
        return reduce(self, inputs)

    return reduced


def _has_nan(value: Any) -> bool:
    return value.handle.data.dtype.kind == "f" and bool(np.isnan(value.handle.data).any())


def _widened(value: Any) -> Any:
    if not isinstance(value, upstream.TensorHandle) or value.dtype.scalar is not _BFLOAT16:
        return value
    return upstream.TensorHandle((value.data.astype(np.uint32) << np.uint32(16)).view(np.float32), tl.float32)


def _narrowed(value: Any) -> Any:
    """Round to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(value.data).view(np.uint32)
    rounded = ((bits + _HALF + ((bits >> np.uint32(16)) & _ONE)) >> np.uint32(16)).astype(np.uint16)
    return upstream.TensorHandle(np.where(np.isnan(value.data), _QUIET, rounded), _BFLOAT16)


def _reduced(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [value.handle.data for value in inputs]
    shape = blocks[0].shape
    blocks = [block.ravel() if self.axis is None else np.moveaxis(block, self.axis, -1) for block in blocks]
    if any(value.dtype in (_BFLOAT16, tl.float16) for value in inputs):
        blocks = _combined_by_threads(self, inputs, blocks)
    while blocks[0].shape[-1] > 1:
        half = blocks[0].shape[-1] // 2
        blocks = _combined(
            self, inputs, [block[..., :half] for block in blocks], [block[..., half:] for block in blocks]
        )
    blocks = [block[..., 0] for block in blocks]
    if self.keep_dims:
        kept = [1] * len(shape) if self.axis is None else [*shape]
        if self.axis is not None:
            kept[self.axis] = 1
        blocks = [block.reshape(kept) for block in blocks]
    elif blocks[0].ndim == 0:
        return [self.to_tensor(block.item(), value.dtype) for block, value in zip(blocks, inputs, strict=True)]
    return [self.to_tensor(block, value.dtype) for block, value in zip(blocks, inputs, strict=True)]


def _combined_by_threads(self: Any, inputs: Any, blocks: _Blocks) -> _Blocks:
    """Combine, one after the other, elements along the last axis that one thread holds: rounding adds up there."""
    each = held_by_a_thread(blocks[0].shape[-1], blocks[0].size, self.axis in (None, len(blocks[0].shape) - 1))
    parts = [block.reshape(*block.shape[:-1], -1, each) for block in blocks]
    found = [part[..., 0] for part in parts]
    for place in range(1, each):
        found = _combined(self, inputs, found, [part[..., place] for part in parts])
    return found


def held_by_a_thread(along: int, size: int, is_last: bool) -> int:
    """Return how many of the elements along an axis, of a block of 16-bit elements, lie in one thread's registers.

    Threads take up to eight neighbours each of the last axis, and what is left once all threads have some.
    """
    threads = OPERATION_LOG.threads
    together = min(_VECTOR, max(1, size // threads))
    return min(along, max(together, along // threads) if is_last else max(1, size // threads // together))


def sum_in_own_type(values: np.ndarray[Any, Any], each: int) -> np.ndarray[Any, Any]:
    """Add float16 values along the last axis: `each` neighbours one after the other, then the halves of the rest."""
    parts = values.reshape(*values.shape[:-1], -1, each)
    found = parts[..., 0]
    with np.errstate(all="ignore"):
        for place in range(1, each):
            found = found + parts[..., place]
        while found.shape[-1] > 1:
            half = found.shape[-1] // 2
            found = found[..., :half] + found[..., half:]
    return found[..., 0]


def _scanned(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [np.moveaxis(value.handle.data, self.axis, -1) for value in inputs]
    try:
        blocks = _scanned_at_once(self, inputs, blocks)
    except (ValueError, TypeError):  # the function branches on its operands, which is undefined for a block
        blocks = _scanned_by_pairs(self, inputs, blocks)
    return [
        self.to_tensor(np.moveaxis(block, -1, self.axis), value.dtype)
        for block, value in zip(blocks, inputs, strict=True)
    ]


def _scanned_at_once(self: Any, inputs: Any, blocks: _Blocks) -> _Blocks:
    """Return the running results along the last axis, with whole blocks at each level."""
    places = np.arange(blocks[0].shape[-1])
    distance = 1
    while distance < places.size:
        before = [np.roll(block, distance, axis=-1) for block in blocks]
        both = _combined_as_blocks(self, inputs, before, blocks)
        blocks = [np.where(places < distance, old, new) for old, new in zip(blocks, both, strict=True)]
        distance *= 2
    return blocks


def _scanned_by_pairs(self: Any, inputs: Any, blocks: _Blocks) -> _Blocks:
    """Return the same with two calls of the function for each element, which are made one by one."""
    if blocks[0].shape[-1] == 1:
        return blocks
    pairs = _combined(self, inputs, [block[..., 0::2] for block in blocks], [block[..., 1::2] for block in blocks])
    ends = _scanned_by_pairs(self, inputs, pairs)
    found = [block.copy() for block in blocks]
    for block, end in zip(found, ends, strict=True):
        block[..., 1::2] = end
    if blocks[0].shape[-1] > 2:
        inner = _combined(self, inputs, [end[..., :-1] for end in ends], [block[..., 2::2] for block in blocks])
        for block, values in zip(found, inner, strict=True):
            block[..., 2::2] = values
    return found


def _combined(self: Any, inputs: Any, left: _Blocks, right: _Blocks) -> _Blocks:
    """Call the kernel's function on two sets of blocks, or on each pair of their elements if it takes no blocks."""
    if self.combine_fn is tl.standard._sum_combine:  # pyright: ignore[reportPrivateUsage]
        return [_added(left[0], right[0], inputs[0].dtype)]
    try:
        return _combined_as_blocks(self, inputs, left, right)
    except (ValueError, TypeError):  # the function branches on its operands, which is undefined for a block
        found = [np.empty_like(block) for block in left]
        for place in np.ndindex(left[0].shape):
            results = _called(self, inputs, [block[place] for block in (*left, *right)])
            for block, result in zip(found, results, strict=True):
                block[place] = result.handle.data.item() if isinstance(result, tl.tensor) else result
        return found


def _added(left: Any, right: Any, dtype: Any) -> Any:
    if dtype is not _BFLOAT16:
        with np.errstate(all="ignore"):
            return left + right
    one, other = (_widened(upstream.TensorHandle(each, dtype)).data for each in (left, right))
    return _narrowed(upstream.TensorHandle(np.add(one, other), tl.float32)).data


def _combined_as_blocks(self: Any, inputs: Any, left: _Blocks, right: _Blocks) -> _Blocks:
    results = _called(self, inputs, [*left, *right])
    if any(result.handle.data.shape != left[0].shape for result in results):
        raise ValueError("a constant among the results")
    return [result.handle.data.astype(block.dtype, copy=False) for result, block in zip(results, left, strict=True)]


def _called(self: Any, inputs: Any, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Call the kernel's function on values, first those of all left operands; returns its results."""
    types = [value.dtype for value in inputs]
    found = self.combine_fn.fn(*map(self.to_tensor, operands, types + types))
    return found if isinstance(found, tuple) else (found,)
