"""libdevice as the interpreter runs it: the mathematical functions that CUDA's and AMD's device libraries have, by PyTorch on the CPU.

Triton's interpreter knows none of them (a call returns None), though honest kernels use them all the time. Like the device
library they take float32 and float64, or integers where the function is one on integers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kernels_eval.interpreter.memory_accesses import ACCESS_LOG
from kernels_eval.interpreter.triton_patches.names import upstream

_Function = Callable[..., torch.Tensor]


def _float(function: _Function) -> Any:
    return _elementwise(function, None)


def _test(function: _Function) -> Any:
    return _elementwise(function, tl.int1)


def _integer(function: _Function) -> Any:
    return _elementwise(function, tl.int32)


def _elementwise(function: _Function, result: Any) -> Any:
    """Make a function on Triton's tensors of one on PyTorch's. `result`: its type; None: that of the arguments."""

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
        ACCESS_LOG.vector_flops += computed.numel()
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
    """Halves away from zero, as C does; PyTorch rounds them to even."""
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
    """Stands for the module in an interpreted kernel."""


for _name, _function in _FLOAT.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_float(_function)))
for _name, _function in _TESTS.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_test(_function)))
for _name, _function in _INTEGERS.items():
    setattr(InterpretedLibdevice, _name, staticmethod(_integer(_function)))


def install() -> None:
    """Put it where kernels that spell the whole path (`tl.extra.cuda.libdevice.tanh`) find Triton's own. In an executor's process alone."""
    extra: Any = tl.extra
    for owner in (extra, extra.cuda, extra.hip):
        owner.libdevice = InterpretedLibdevice
