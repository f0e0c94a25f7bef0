"""Interpreter process: functions of CUDA's device library on NumPy arrays.

Functions of floats compute in double precision and round once; `fast_` and `_rn` variants are as exact as the others,
but for circular ones of large arguments, and quotients by large numbers.
Definitions: CUDA Math API, and for conversions out of range the instruction `cvt` of the PTX ISA.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
_WIDE = np.longdouble
_MOST_POINTS = 8192


def _double(function: Function) -> Function:
    """Compute in double precision by NumPy."""
    return lambda *arrays: function(*(array.astype(np.float64) for array in arrays))


def _torch(function: Function) -> Function:
    """Compute in double precision by PyTorch."""
    return _double(lambda *arrays: function(*(torch.from_numpy(array) for array in arrays)).numpy())


def _directed(function: Function, mode: str, narrow: Any = None) -> Function:
    """Round a function's exact result to the type of its argument: `n`earest, towards `z`ero, `d`own or `u`p."""

    def rounded(*arrays: Array) -> Array:
        exact = function(*(array.astype(_WIDE) for array in arrays))
        near = exact.astype(narrow or arrays[0].dtype)
        if mode == "n":
            return near
        back = near.astype(_WIDE)
        if mode == "z":
            return np.where(abs(back) > abs(exact), np.nextafter(near, near.dtype.type(0)), near)
        limit = near.dtype.type(-np.inf if mode == "d" else np.inf)
        return np.where(back > exact if mode == "d" else back < exact, np.nextafter(near, limit), near)

    return rounded


_TURNS = _directed(lambda x: x * _WIDE(np.float32(1 / (2 * math.pi))), "z")
_ROUND: dict[str, Function] = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}


def _to_integer(target: Any, mode: str) -> Function:
    """Convert floats to integers: saturating, NaN to zero, or to the highest bit alone where a type has 64 bits."""
    limits = np.iinfo(target)

    def converted(array: Array) -> Array:
        whole = _ROUND[mode](array.astype(_WIDE))
        is_long = array.dtype.itemsize == 8 or np.dtype(target).itemsize == 8
        nan = (np.array(1, np.uint64) << np.uint64(limits.bits - 1)).astype(target) if is_long else target(0)
        inside = np.clip(
            np.nan_to_num(whole, nan=0.0, posinf=float("inf"), neginf=float("-inf")),
            _WIDE(limits.min),
            _WIDE(limits.max),
        )
        return np.where(np.isnan(array), nan, inside.astype(target))

    return converted


def _from_integer(source: Any, target: Any, mode: str) -> Function:
    round_to = _directed(lambda value: value, mode, target)
    return lambda array: round_to(array.view(source))


def _unsigned(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def _bits(array: Array) -> int:
    return 8 * array.dtype.itemsize


def _length(array: Array) -> Array:
    """Return the number of bits below and including the highest one that is set."""
    bits, one = _unsigned(array), _unsigned(array).dtype.type(1)
    return sum(((bits >> (one * place)) != 0).astype(np.int32) for place in range(_bits(array)))  # pyright: ignore[reportReturnType]


def _set_bits(array: Array) -> Array:
    bits, one = _unsigned(array), _unsigned(array).dtype.type(1)
    return sum(((bits >> (one * place)) & one).astype(np.int32) for place in range(_bits(array)))  # pyright: ignore[reportReturnType]


def _reversed_bits(array: Array) -> Array:
    bits, one = _unsigned(array), _unsigned(array).dtype.type(1)
    return sum(((bits >> (one * place)) & one) << (one * (_bits(array) - 1 - place)) for place in range(_bits(array)))  # pyright: ignore[reportReturnType]


def _high_product(x: Array, y: Array) -> Array:
    exact = (x.astype(object) * y.astype(object)) >> _bits(x)
    return np.asarray(exact).astype(x.dtype)


def _product_24(x: Array, y: Array) -> Array:
    shift = x.dtype.type(8)
    return ((x << shift) >> shift) * ((y << shift) >> shift)


def _byte_perm(x: Array, y: Array, selector: Array) -> Array:
    both = x.view(np.uint32).astype(np.uint64) | (y.view(np.uint32).astype(np.uint64) << np.uint64(32))
    found = np.zeros_like(both)
    for place in range(4):
        chosen = (selector.view(np.uint32).astype(np.uint64) >> np.uint64(4 * place)) & np.uint64(7)
        found |= ((both >> (np.uint64(8) * chosen)) & np.uint64(255)) << np.uint64(8 * place)
    return found.astype(np.uint32)


def _halved(x: Array, y: Array, more: int) -> Array:
    return ((x.astype(object) + y.astype(object) + more) >> 1).astype(x.dtype)


def _gamma(x: Array) -> Array:
    value = np.exp(torch.lgamma(torch.from_numpy(x)).numpy())
    is_pole = (x <= 0) & (x == np.floor(x)) & (x != 0)
    sign = np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, np.where(x == 0, np.copysign(1.0, x), 1.0))
    return np.where(is_pole | (x == -np.inf), np.nan, sign * value)


def _bessel_j(order: Array, x: Array) -> Array:
    """Integrate cos(n t - x sin t) over a period, which the rectangle rule does exactly with enough points.

    Arguments that need more than `_MOST_POINTS` points (beyond about 4,000) lose accuracy.
    """
    n, x = np.broadcast_arrays(order.astype(np.float64), x.astype(np.float64))
    known = np.where(np.isfinite(x), x, 0.0)
    points = int(min(_MOST_POINTS, 2 * (abs(known).max(initial=0) + abs(n).max(initial=0)) + 64))
    angles = np.arange(points) * (2 * math.pi / points)
    found = np.cos(n[..., None] * angles - known[..., None] * np.sin(angles)).mean(axis=-1)
    return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), 0.0, found))


def _bessel_y(order: Array, x: Array) -> Array:
    n, x = np.broadcast_arrays(order.astype(np.int64), x.astype(np.float64))
    before, value = (f(torch.from_numpy(x.copy())).numpy() for f in (torch.special.bessel_y0, torch.special.bessel_y1))
    found = np.where(n == 0, before, value)
    for step in range(1, int(abs(n).max(initial=0))):
        before, value = value, 2 * step / x * value - before
        found = np.where(abs(n) == step + 1, value, found)
    return np.where((n < 0) & (n % 2 != 0), -1.0, 1.0) * np.where(
        abs(n) == 1, _torch(torch.special.bessel_y1)(x), found
    )


def _exponent(x: Array) -> Array:
    return np.frexp(x)[1] - 1


def _ilogb(x: Array) -> Array:
    lowest, highest = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    return np.where((x == 0) | np.isnan(x), lowest, np.where(np.isinf(x), highest, _exponent(x)))


def _logb(x: Array) -> Array:
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), _exponent(x), abs(x)))


def _round_half_away(x: Array) -> Array:
    whole = np.trunc(x)
    return whole + np.copysign(abs(x - whole) >= 0.5, x)


def _remainder(x: Array, y: Array) -> Array:
    wide, by = x.astype(_WIDE), y.astype(_WIDE)
    return np.where(np.isinf(by) & np.isfinite(wide), wide, wide - np.rint(wide / by) * by)


def _sine_of_pi(x: Array) -> Array:
    rest = np.fmod(x, 2.0)
    return np.where(rest == np.rint(rest), np.copysign(0.0, x), np.sin(math.pi * rest))


def _cosine_of_pi(x: Array) -> Array:
    rest = np.fmod(abs(x), 2.0)
    return np.where((rest == 0.5) | (rest == 1.5), 0.0, np.cos(math.pi * rest))


def sine_of_turns(x: Array) -> Array:
    """Return the sine as the special function unit has it: of x / (2 pi), which is cut to float32 before it."""
    return np.sin(2 * math.pi * _turns(x))


def cosine_of_turns(x: Array) -> Array:
    """Return the cosine in the same way."""
    return np.cos(2 * math.pi * _turns(x))


def _turns(x: Array) -> Array:
    return _TURNS(x.astype(np.float32)).astype(np.float64)


def _divided(x: Array, y: Array) -> Array:
    """Divide; by more than 2^126 the quotient is zero (`div.approx.f32`)."""
    return np.where((abs(y) > 2.0**126) & np.isfinite(y), x * y.dtype.type(0), np.divide(x, y))


def _norm(*arrays: Array) -> Array:
    return np.sqrt(sum(array.astype(_WIDE) ** 2 for array in arrays))


def _upper_half(x: Array) -> Array:
    return ((1.0 / x).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)


FUNCTIONS: dict[str, Function] = {
    # integers
    "clz": lambda x: _bits(x) - _length(x), "popc": _set_bits, "brev": _reversed_bits,
    "ffs": lambda x: _length(x & -x), "byte_perm": _byte_perm, "mulhi": _high_product, "mul24": _product_24,
    "sad": lambda x, y, z: np.where(x > y, x - y, y - x) + z.view(x.dtype),
    "hadd": lambda x, y: _halved(x, y, 0), "rhadd": lambda x, y: _halved(x, y, 1),
    # rounding and signs
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint,
    "round": _round_half_away, "llrint": _to_integer(np.int64, "n"),
    "llround": lambda x: _to_integer(np.int64, "z")(_round_half_away(x)),
    "saturatef": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)), "copysign": np.copysign,
    "nextafter": np.nextafter, "isnan": np.isnan, "isinf": np.isinf, "finitef": np.isfinite, "isfinited": np.isfinite,
    "signbit": np.signbit, "fdim": lambda x, y: np.where(x <= y, 0.0, x - y), "fmod": np.fmod, "remainder": _remainder,
    "ilogb": _ilogb, "logb": _logb, "ldexp": np.ldexp, "scalbn": np.ldexp,
    # powers, exponentials, logarithms
    "pow": _double(np.power), "fast_powf": _double(lambda x, y: np.exp2(y * np.log2(x))), "sqrt": np.sqrt,
    "rsqrt": _double(lambda x: 1 / np.sqrt(x)),
    "rsqrt_rn": _double(lambda x: 1 / np.sqrt(x)), "cbrt": _double(np.cbrt), "rcbrt": _double(lambda x: 1 / np.cbrt(x)),
    "rcp64h": _upper_half, "exp": _double(np.exp), "exp2": _double(np.exp2), "exp10": _double(lambda x: 10.0**x),
    "expm1": _double(np.expm1), "log": _double(np.log), "log2": _double(np.log2), "log10": _double(np.log10),
    "log1p": _double(np.log1p), "fast_expf": _double(np.exp), "fast_exp10f": _double(lambda x: 10.0**x),
    "fast_logf": _double(np.log), "fast_log2f": _double(np.log2), "fast_log10f": _double(np.log10),
    "fast_dividef": _divided, "hypot": _norm, "norm3d": _norm, "norm4d": _norm,
    "rhypot": lambda *x: 1 / _norm(*x), "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
    # circular and hyperbolic functions
    "sin": _double(np.sin), "cos": _double(np.cos), "tan": _double(np.tan), "asin": _double(np.arcsin),
    "acos": _double(np.arccos), "atan": _double(np.arctan), "atan2": _double(np.arctan2), "sinh": _double(np.sinh),
    "cosh": _double(np.cosh), "tanh": _double(np.tanh), "asinh": _double(np.arcsinh), "acosh": _double(np.arccosh),
    "atanh": _double(np.arctanh), "sinpi": _double(_sine_of_pi), "cospi": _double(_cosine_of_pi),
    "fast_sinf": sine_of_turns, "fast_cosf": cosine_of_turns,
    "fast_tanf": lambda x: sine_of_turns(x) / cosine_of_turns(x),
    # special functions
    "erf": _torch(torch.erf), "erfc": _torch(torch.erfc), "erfinv": _torch(torch.erfinv),
    "erfcx": _torch(torch.special.erfcx), "erfcinv": _torch(lambda x: torch.special.ndtri(x / 2) / -math.sqrt(2)),
    "normcdf": _torch(torch.special.ndtr), "normcdfinv": _torch(torch.special.ndtri), "lgamma": _torch(torch.lgamma),
    "tgamma": _double(_gamma), "j0": lambda x: _bessel_j(np.array(0), x), "j1": lambda x: _bessel_j(np.array(1), x),
    "y0": _torch(torch.special.bessel_y0), "y1": _torch(torch.special.bessel_y1), "jn": _bessel_j, "yn": _bessel_y,
    "cyl_bessel_i0": _torch(torch.special.i0), "cyl_bessel_i1": _torch(torch.special.i1),
    # bits of other types
    "hiloint2double": lambda high, low: (
        (high.view(np.uint32).astype(np.uint64) << np.uint64(32)) | low.view(np.uint32)
    ).view(np.float64),
    "double2loint": lambda x: x.view(np.uint64).astype(np.uint32),
    "double2hiint": lambda x: (x.view(np.uint64) >> np.uint64(32)).astype(np.uint32),
    "int_as_float": lambda x: x.view(np.float32), "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32), "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64), "double_as_longlong": lambda x: x.view(np.int64),
}  # fmt: skip
"""Elementwise functions on arrays that have one shape, by name; results may have a wider type than declared."""

for _mode in "nzdu":
    FUNCTIONS.update({
        f"fma_r{_mode}": _directed(lambda x, y, z: x * y + z, _mode),
        f"add_r{_mode}": _directed(np.add, _mode), f"sub_r{_mode}": _directed(np.subtract, _mode),
        f"mul_r{_mode}": _directed(np.multiply, _mode), f"div_r{_mode}": _directed(np.divide, _mode),
        f"rcp_r{_mode}": _directed(np.reciprocal, _mode), f"sqrt_r{_mode}": _directed(np.sqrt, _mode),
        f"double2float_r{_mode}": _directed(lambda value: value, _mode, np.float32),
    })  # fmt: skip
    for _integer, _type in (("int", np.int32), ("uint", np.uint32), ("ll", np.int64), ("ull", np.uint64)):
        for _float, _target in (("float", np.float32), ("double", np.float64)):
            FUNCTIONS[f"{_float}2{_integer}_r{_mode}"] = _to_integer(_type, _mode)
            FUNCTIONS[f"{_integer}2{_float}_r{_mode}"] = _from_integer(_type, _target, _mode)
FUNCTIONS["fma"] = FUNCTIONS["fma_rn"]
