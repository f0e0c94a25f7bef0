"""Device functions of Inductor's `triton_helpers`, for kernels that Inductor generated: written anew for the judge.

Candidates may call them; each is compiled, or interpreted, as the candidate's own functions are.
"""
# pyright: reportMissingParameterType=false, reportUnknownParameterType=false

import triton
import triton.language as tl
from triton.language.extra import libdevice as _libdevice

libdevice = _libdevice
math = tl.math


def get_constexprs(kernel):
    """Return the places of a kernel's compile-time parameters: host code calls it."""
    annotations = kernel.fn.__annotations__
    return [place for place, name in enumerate(kernel.arg_names) if "constexpr" in str(annotations.get(name))]


@triton.jit
def maximum(a, b):
    """Return the larger of two values; NaN if one of them is NaN, as torch.maximum does."""
    return tl.where((a != a) | (a > b), a, b)


@triton.jit
def minimum(a, b):
    """Return the smaller of two values; NaN if one of them is NaN."""
    return tl.where((a != a) | (a < b), a, b)


@triton.jit
def promote_to_tensor(x):
    """Return a scalar as a tensor of one element."""
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def is_floating(x):
    """Return True for a floating-point type."""
    return promote_to_tensor(x).dtype.is_floating()


@triton.jit
def max2(a, dim):
    """Return the maximum along a dimension; NaN if one is in it."""
    return tl.reduce(a, dim, maximum)


@triton.jit
def min2(a, dim):
    """Return the minimum along a dimension; NaN if one is in it."""
    return tl.reduce(a, dim, minimum)


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def any(a, dim):
    """Return True along a dimension where one value is not zero."""
    return tl.reduce(a, dim, _either)


@triton.jit
def div_floor_integer(a, b):
    """Return the quotient of integers, rounded down."""
    quotient = a // b
    remainder = a % b
    return tl.where((remainder != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def remainder_integer(a, b):
    """Return the remainder of integers with the sign of the divisor."""
    remainder = a % b
    return tl.where((remainder != 0) & ((a < 0) != (b < 0)), remainder + b, remainder)
