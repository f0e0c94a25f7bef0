"""Interpreter process: conversions from and to types of eight bits, as NVIDIA's GPUs do them.

Upstream drops the carry of a significand that rounds up to the next power of two, and rounds ties up. Here PyTorch
converts, to the nearest value, ties to even; what is too large becomes the largest finite number (`satfinite` of PTX's
`cvt`). Conversions towards zero, and fp8e4b15, which PyTorch lacks, stay upstream's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from kernels_eval.interpreter.triton_patches.names import upstream

_TYPES: dict[str, torch.dtype] = {
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
"""PyTorch's types, by the names of Triton's."""
_FLOATS = ("fp16", "bf16", "fp32", "fp64")


def install() -> None:
    """Patch Triton's interpreter in this process. Call it after bfloat16 can be cast (`arithmetic`)."""
    builder = upstream.InterpreterBuilder
    builder.create_fp_to_fp = _conversion(builder.create_fp_to_fp)


def _conversion(convert: Callable[..., Any]) -> Callable[..., Any]:
    def converted(self: Any, value: Any, wanted: Any, rounding: Any) -> Any:
        before, after = value.dtype.scalar, wanted.scalar
        is_nearest = rounding is None or rounding == upstream._ir.ROUNDING_MODE.RTNE
        if before.name in _TYPES and after.name in (*_TYPES, *_FLOATS):
            value = upstream.TensorHandle(_widened(value.data, _TYPES[before.name]), tl.float32)
        elif after.name not in _TYPES or before.name not in _FLOATS or not is_nearest:
            return convert(self, value, wanted, rounding)
        if after.name not in _TYPES:
            return value if after is tl.float32 else self.cast_impl(value, wanted)
        if value.dtype.scalar is not tl.float32:
            value = self.cast_impl(value, tl.float32)
        return upstream.TensorHandle(_narrowed(value.data, _TYPES[after.name]), after)

    return converted


def _widened(bits: np.ndarray[Any, Any], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    return _tensor(bits).view(dtype).float().numpy()


def _narrowed(values: np.ndarray[Any, Any], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    largest = torch.finfo(dtype).max
    return _tensor(values).clamp(-largest, largest).to(dtype).view(torch.uint8).numpy()


def _tensor(values: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
