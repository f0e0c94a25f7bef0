"""Interpreter process: `tl.dot_scaled`, which Triton's interpreter lacks, as Triton computes it on an H100.

Operands become bfloat16 there, or float16 if one of them is: each element times the power of two, in that type too, of
its group of 32 along the reduced axis. A scale of 255 is NaN, one of 0 is zero. Products are added in float32.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from kernels_eval.cost.instructions import product_operation
from kernels_eval.interpreter.load_turns import LOAD_TURNS
from kernels_eval.interpreter.operation_log import OPERATION_LOG
from kernels_eval.interpreter.own_stores import OWN_STORES
from kernels_eval.interpreter.triton_patches.names import upstream

_GROUP = 32
_NOT_A_NUMBER = 255
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""Numbers of the format e2m1, by their four bits."""


def install() -> None:
    """Patch Triton's interpreter in this process, once."""
    upstream.InterpreterBuilder.create_dot_scaled = _dot_scaled
    for language in (tl, tl.core):
        language.dot_scaled = _with_constants(language.dot_scaled)  # pyright: ignore[reportAttributeAccessIssue]


def _with_constants(dot_scaled: Callable[..., Any]) -> Callable[..., Any]:
    """Return `tl.dot_scaled` for formats that are plain texts: the compiler makes constants of them."""

    def call(lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, *rest: Any,
             **named: Any) -> Any:  # fmt: skip
        formats = [
            value if isinstance(value, tl.constexpr) else tl.constexpr(value) for value in (lhs_format, rhs_format)
        ]
        return dot_scaled(lhs, lhs_scale, formats[0], rhs, rhs_scale, formats[1], *rest, **named)

    return call


def _dot_scaled(
    self: Any,
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    fast_math: bool,
    lhs_k_pack: bool,
    rhs_k_pack: bool,
    acc: Any,
) -> Any:
    left = _numbers(self, lhs, -1 if lhs_k_pack else -2)
    right = np.swapaxes(_numbers(self, rhs, -2 if rhs_k_pack else -1), -1, -2)
    narrow = tl.float16 if tl.float16 in (lhs.dtype.scalar, rhs.dtype.scalar) else tl.bfloat16
    left, right = (
        _rounded(self, _scaled(self, values, scale, narrow), narrow)
        for values, scale in ((left, lhs_scale), (right, rhs_scale))
    )
    unit, each = product_operation(str(narrow), "ieee")
    OPERATION_LOG.counts[unit] += each * left.size * right.shape[-2]
    LOAD_TURNS.multiply(lhs, lhs_scale, rhs, rhs_scale)
    OWN_STORES.multiply(lhs, lhs_scale, rhs, rhs_scale)
    product = np.matmul(left, np.swapaxes(right, -1, -2), dtype=np.float32)
    return upstream.TensorHandle(product + acc.data, acc.dtype.scalar)


def _numbers(builder: Any, operand: Any, packed_axis: int) -> Any:
    """Return an operand's elements as float32; two of four bits are in one byte along an axis, the lower bits first."""
    if operand.dtype.scalar is not tl.uint8:
        return builder.create_fp_to_fp(operand, tl.float32, None).data
    pair = np.stack([_FP4[operand.data & 15], _FP4[operand.data >> 4]], axis=-1)
    pair = np.moveaxis(pair, -1, packed_axis)  # beside the axis that it is to be merged with
    shape = list(operand.data.shape)
    shape[packed_axis] *= 2
    return pair.reshape(shape)


def _scaled(builder: Any, values: Any, scale: Any, narrow: Any) -> Any:
    """Return elements times the scale of their group along the last axis."""
    if scale is None:
        return values
    if scale.dtype.scalar not in (tl.uint8, tl.int8):
        raise NotImplementedError(f"tl.dot_scaled: scales of type {scale.dtype.scalar}; an H100 takes e8m0, as uint8")
    exponents = scale.data.view(np.uint8).astype(np.int32)
    powers = np.ldexp(np.float32(1), exponents - 127)
    powers = np.where(exponents == _NOT_A_NUMBER, np.float32(np.nan), np.where(exponents == 0, np.float32(0), powers))
    return values * np.repeat(_rounded(builder, powers, narrow), _GROUP, axis=-1)


def _rounded(builder: Any, values: Any, narrow: Any) -> Any:
    handle = upstream.TensorHandle(values.astype(np.float32), tl.float32)
    return builder.create_fp_to_fp(builder.create_fp_to_fp(handle, narrow, None), tl.float32, None).data
