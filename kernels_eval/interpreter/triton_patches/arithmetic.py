"""Interpreter process: arithmetic that Triton's interpreter lacks: bfloat16, TF32, libdevice, reductions by blocks.

The interpreter keeps bfloat16 as its bits, and upstream adds, compares and multiplies those bits. Here operands are
widened to float32, and the result is rounded to bfloat16 after each operation, as in the compiled kernel. Products in
TF32 get operands of TF32's ten mantissa bits.

Upstream calls the function of `tl.reduce` and `tl.associative_scan` once for each element, on scalars. The function
must be associative, or the compiled kernel would be wrong too. Here it is called on whole blocks, neighbours with
neighbours, once for each level of a tree.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kernels_eval.interpreter.triton_patches.names import upstream

_BFLOAT16: Any = tl.bfloat16
_TF32_BITS = np.uint32(0xFFFFE000)
_HALF = np.uint32(0x7FFF)
_ONE = np.uint32(1)
_QUIET = np.uint16(0x7FC0)
_Blocks = list[np.ndarray[Any, Any]]
_WIDENED = ("binary_op", "unary_op", "create_clampf", "create_fma", "create_rsqrt", "create_dot")
"""Operations of the interpreter's builder that compute; the last operand has the result's type."""


def install() -> None:
    """Patch Triton's interpreter in this process. Call it after anything that replaces these operations."""
    builder = upstream.InterpreterBuilder
    for name in _WIDENED:
        setattr(builder, name, _in_float32(getattr(builder, name)))
    builder.cast_impl = _cast(builder.cast_impl)
    for operations in (upstream.ReduceOps, upstream.ScanOps):
        operations.apply_impl = _reduction(operations.apply_impl)
    builder.get_bf16 = lambda self, value: _narrowed(self.get_fp32(value))
    upstream.ReduceOps.generic_reduce = _by_blocks(_reduced, upstream.ReduceOps.generic_reduce)
    upstream.ScanOps.generic_scan = _by_blocks(_scanned, upstream.ScanOps.generic_scan)


def to_tf32(values: Any) -> Any:
    """Cut float32 values to TF32's mantissa, as tensor cores do."""
    return (np.ascontiguousarray(values).view(np.uint32) & _TF32_BITS).view(np.float32)


def _in_float32(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that takes bfloat16 too."""

    def computed(self: Any, *operands: Any) -> Any:
        types = [value.dtype.scalar for value in operands if isinstance(value, upstream.TensorHandle)]
        if _BFLOAT16 not in types:
            return compute(self, *operands)
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


def _reduction(reduce: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction or scan that takes bfloat16 too; it rounds once, at the end."""

    def reduced(self: Any, inputs: Any) -> Any:
        are_narrow = [value.dtype is _BFLOAT16 for value in inputs]
        if not any(are_narrow):
            return reduce(self, inputs)
        wide = [
            self.to_tensor(_widened(value.handle).data, tl.float32) if is_narrow else value
            for value, is_narrow in zip(inputs, are_narrow, strict=True)
        ]
        results = reduce(self, tuple(wide))
        return [
            _as_bfloat16(self, result) if is_narrow and result.dtype is tl.float32 else result
            for result, is_narrow in zip(
                results if isinstance(results, list | tuple) else [results], are_narrow, strict=False
            )
        ]

    return reduced


def _as_bfloat16(self: Any, result: Any) -> Any:
    bits = _narrowed(result.handle).data
    return self.to_tensor(bits if result.type.is_block() else bits.item(), _BFLOAT16)


def _widened(value: Any) -> Any:
    if not isinstance(value, upstream.TensorHandle) or value.dtype.scalar is not _BFLOAT16:
        return value
    return upstream.TensorHandle((value.data.astype(np.uint32) << np.uint32(16)).view(np.float32), tl.float32)


def _narrowed(value: Any) -> Any:
    """Round to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(value.data).view(np.uint32)
    rounded = ((bits + _HALF + ((bits >> np.uint32(16)) & _ONE)) >> np.uint32(16)).astype(np.uint16)
    return upstream.TensorHandle(np.where(np.isnan(value.data), _QUIET, rounded), _BFLOAT16)


def _by_blocks(by_blocks: Callable[..., Any], one_by_one: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, inputs: Any) -> Any:
        try:
            return by_blocks(self, inputs)
        except (ValueError, TypeError):  # the function branches on its operands, which is undefined for a block
            return one_by_one(self, inputs)

    return run


def _reduced(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [value.handle.data for value in inputs]
    shape = blocks[0].shape
    blocks = [block.ravel() if self.axis is None else np.moveaxis(block, self.axis, -1) for block in blocks]
    while blocks[0].shape[-1] > 1:
        blocks = _combined(self, inputs, [block[..., 0::2] for block in blocks], [block[..., 1::2] for block in blocks])
    blocks = [block[..., 0] for block in blocks]
    if self.keep_dims:
        kept = [1] * len(shape) if self.axis is None else [*shape]
        if self.axis is not None:
            kept[self.axis] = 1
        blocks = [block.reshape(kept) for block in blocks]
    elif blocks[0].ndim == 0:
        return [self.to_tensor(block.item(), value.dtype) for block, value in zip(blocks, inputs, strict=True)]
    return [self.to_tensor(block, value.dtype) for block, value in zip(blocks, inputs, strict=True)]


def _scanned(self: Any, inputs: Any) -> list[Any]:
    blocks: _Blocks = [np.moveaxis(value.handle.data, self.axis, -1) for value in inputs]
    places = np.arange(blocks[0].shape[-1])
    distance = 1
    while distance < places.size:
        before = [np.roll(block, distance, axis=-1) for block in blocks]
        both = _combined(self, inputs, before, blocks)
        blocks = [np.where(places < distance, old, new) for old, new in zip(blocks, both, strict=True)]
        distance *= 2
    return [
        self.to_tensor(np.moveaxis(block, -1, self.axis), value.dtype)
        for block, value in zip(blocks, inputs, strict=True)
    ]


def _combined(self: Any, inputs: Any, left: _Blocks, right: _Blocks) -> _Blocks:
    """Call the kernel's function on two sets of blocks."""
    operands = [
        self.to_tensor(block, value.dtype)
        for blocks in (left, right)
        for block, value in zip(blocks, inputs, strict=True)
    ]
    found = self.combine_fn.fn(*operands)
    results = found if isinstance(found, tuple) else (found,)
    if any(result.handle.data.shape != left[0].shape for result in results):
        raise ValueError("a constant among the results")
    return [result.handle.data.astype(block.dtype, copy=False) for result, block in zip(results, left, strict=True)]


_Function = Callable[..., torch.Tensor]


def _float(function: _Function) -> Any:
    return _elementwise(function, None)


def _test(function: _Function) -> Any:
    return _elementwise(function, tl.int1)


def _integer(function: _Function) -> Any:
    return _elementwise(function, tl.int32)


def _elementwise(function: _Function, result: Any) -> Any:
    """Turn a function on PyTorch's tensors into one on Triton's. `result`: its type; None: that of the arguments."""

    def call(*arguments: Any) -> Any:
        values = [value.value if isinstance(value, tl.constexpr) else value for value in arguments]
        tensors = [value for value in values if isinstance(value, tl.tensor)]
        if not tensors:
            raise TypeError("libdevice: expected a tensor among the arguments")
        dtype = next((t.dtype.scalar for t in tensors if t.dtype.scalar.is_floating()), tensors[0].dtype.scalar)
        if dtype in (tl.float16, tl.bfloat16) or dtype.is_fp8() or dtype.is_ptr():
            raise TypeError(f"libdevice: input type {dtype} is not supported, expected fp32 or fp64")
        numpy_type: Any = upstream._get_np_dtype(dtype)
        arrays = [
            torch.from_numpy(np.array(value.handle.data if isinstance(value, tl.tensor) else value, numpy_type))
            for value in values
        ]
        computed = function(*arrays)
        kind = result or dtype
        data = computed.numpy().astype(upstream._get_np_dtype(kind), copy=False)
        is_block = any(isinstance(t.type, tl.block_type) for t in tensors)
        shape = [int(size) for size in data.shape]
        handle = upstream.TensorHandle(data if is_block else data.reshape(1), kind)
        return tl.tensor(handle, tl.block_type(kind, shape) if is_block else kind)

    return call


def _clz(x: torch.Tensor) -> torch.Tensor:
    bits = x.element_size() * 8
    return torch.where(x < 0, 0, bits - 1 - torch.floor(torch.log2(x.clamp(min=1).double())).long() + (x == 0).long())


def _popc(x: torch.Tensor) -> torch.Tensor:
    return sum(((x >> bit) & 1 for bit in range(x.element_size() * 8)), torch.zeros_like(x))


def _round(x: torch.Tensor) -> torch.Tensor:
    """Round halves away from zero, as C does; PyTorch rounds them to even."""
    return torch.trunc(x + torch.copysign(torch.full_like(x, 0.5), x))


_FLOAT: dict[str, _Function] = {
    "abs": torch.abs, "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh,
    "atan": torch.atan, "atan2": torch.atan2, "atanh": torch.atanh, "cbrt": lambda x: x.sign() * x.abs() ** (1 / 3),
    "ceil": torch.ceil, "copysign": torch.copysign, "cos": torch.cos, "cosh": torch.cosh, "erf": torch.erf,
    "erfc": torch.erfc, "exp": torch.exp, "exp10": lambda x: 10.0**x, "exp2": torch.exp2, "expm1": torch.expm1,
    "fdim": lambda x, y: (x - y).clamp(min=0), "floor": torch.floor, "fma": lambda x, y, z: x * y + z,
    "fmod": torch.fmod, "hypot": torch.hypot, "lgamma": torch.lgamma, "log": torch.log, "log10": torch.log10,
    "log1p": torch.log1p, "log2": torch.log2, "max": torch.fmax, "min": torch.fmin, "nearbyint": torch.round,
    "pow": torch.pow, "rint": torch.round, "round": _round, "rsqrt": torch.rsqrt, "sin": torch.sin,
    "sinh": torch.sinh, "sqrt": torch.sqrt, "tan": torch.tan, "tanh": torch.tanh,
    "tgamma": lambda x: torch.exp(torch.lgamma(x)), "trunc": torch.trunc, "saturatef": lambda x: x.clamp(0, 1),
    "add_rn": torch.add, "sub_rn": torch.sub, "mul_rn": torch.mul, "div_rn": torch.div, "rcp_rn": torch.reciprocal,
    "sqrt_rn": torch.sqrt, "rsqrt_rn": torch.rsqrt, "fast_cosf": torch.cos, "fast_dividef": torch.div,
    "fast_exp10f": lambda x: 10.0**x, "fast_expf": torch.exp, "fast_log10f": torch.log10, "fast_log2f": torch.log2,
    "fast_logf": torch.log, "fast_powf": torch.pow, "fast_sinf": torch.sin, "fast_tanf": torch.tan,
    "fast_tanhf": torch.tanh,
}  # fmt: skip
_TESTS: dict[str, _Function] = {
    "isinf": torch.isinf, "isnan": torch.isnan, "isfinited": torch.isfinite, "finitef": torch.isfinite,
    "signbit": torch.signbit,
}  # fmt: skip
_INTEGERS: dict[str, _Function] = {"clz": _clz, "popc": _popc}


class InterpretedLibdevice:
    """Stand-in for libdevice in an interpreted kernel: CUDA's and AMD's device libraries, by PyTorch on the CPU.

    Triton's interpreter knows none of these functions (a call returns None), though honest kernels often use them. As
    in the device library they take float32 and float64, or integers for functions on integers.
    """


for _name, _function in _FLOAT.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_float(_function)))
for _name, _function in _TESTS.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_test(_function)))
for _name, _function in _INTEGERS.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_integer(_function)))


def install_libdevice() -> None:
    """Replace libdevice for kernels that use the whole path (`tl.extra.cuda.libdevice.tanh`).

    Call it in the interpreter process only.
    """
    extra: Any = tl.extra
    for owner in (extra, extra.cuda, extra.hip):
        owner.libdevice = InterpretedLibdevice
