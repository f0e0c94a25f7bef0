"""Interpreter process: PTX instructions between registers on NumPy arrays; one element of an array is one lane.

Definitions: PTX ISA. Approximations are rounded results, as device functions are here (`device_functions`).
`tanh.approx` alone is cut to its eleven bits: a kernel that is right with an exact one need not be right on a GPU.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Operation = Callable[..., Array]
TYPES: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "s8": np.int8, "s16": np.int16, "s32": np.int32,
    "s64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "b8": np.uint8,
    "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.bool_, "bf16": np.uint16, "tf32": np.uint32,
}  # fmt: skip
"""Types of an instruction's operands, as NumPy keeps them; a bfloat16 and a TF32 number are kept as bits."""
_WIDE = np.longdouble
_TANH_BITS = 13
"""Low bits of a float32 that `tanh.approx.f32` does not have: its relative error is 2^-11."""


def bfloat16_bits(values: Array) -> Array:
    """Round float32 numbers to the nearest bfloat16, and return the bits of those (uint16)."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    """Return float32 numbers of the bits of bfloat16 ones."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def tf32_bits(values: Array) -> Array:
    """Round float32 numbers to TF32, to the nearest and away from zero at half; return their bits (uint32)."""
    bits = values.view(np.uint32)
    return np.where(np.isfinite(values), (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits).astype(np.uint32)


def flushed(values: Array) -> Array:
    """Return float32 numbers with zeros for the subnormal ones, of the same sign."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def _rounded(function: Operation) -> Operation:
    """Compute in extended precision and round once, to the type of the operands."""
    return lambda *operands: function(*(each.astype(_WIDE) for each in operands)).astype(operands[0].dtype)


def _shorter(values: Array) -> Array:
    if values.dtype != np.float32:
        return values
    bits = values.view(np.uint32) + np.uint32(1 << (_TANH_BITS - 1))
    return np.where(np.isnan(values), values, (bits & np.uint32(-(1 << _TANH_BITS) & 0xFFFFFFFF)).view(np.float32))


FLOATS: dict[str, Operation] = {
    "add": _rounded(np.add), "sub": _rounded(np.subtract), "mul": _rounded(np.multiply),
    "fma": _rounded(lambda a, b, c: a * b + c), "mad": _rounded(lambda a, b, c: a * b + c), "div": _rounded(np.divide),
    "neg": np.negative, "abs": np.abs, "copysign": lambda sign, value: np.copysign(value, sign),
    "ex2": _rounded(np.exp2), "lg2": _rounded(np.log2), "rcp": _rounded(lambda a: 1 / a), "sqrt": _rounded(np.sqrt),
    "rsqrt": _rounded(lambda a: 1 / np.sqrt(a)), "sin": _rounded(np.sin), "cos": _rounded(np.cos),
    "tanh": lambda a: _shorter(_rounded(np.tanh)(a)), "min": np.fmin, "max": np.fmax,
}  # fmt: skip
"""Instructions on floating-point numbers, by name."""
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_DOUBLED: dict[Any, Any] = {np.dtype(np.int32): np.int64, np.dtype(np.uint32): np.uint64,
                            np.dtype(np.int16): np.int32, np.dtype(np.uint16): np.uint32}  # fmt: skip


def _unsigned(values: Array) -> Array:
    return values.view(_BITS[values.dtype.itemsize])


def _shift(left: bool) -> Operation:
    def shift(values: Array, count: Array) -> Array:
        bits = values.dtype.itemsize * 8
        places = count.astype(np.uint64)
        inside = np.minimum(places, bits - 1).astype(values.dtype)
        moved = values << inside if left else values >> inside
        beyond = (
            values >> values.dtype.type(bits - 1) if values.dtype.kind == "i" and not left else np.zeros_like(values)
        )
        return np.where(places < bits, moved, beyond)

    return shift


def _count_bits(values: Array) -> Array:
    return np.bitwise_count(_unsigned(values)).astype(np.uint32)


def _leading_zeros(values: Array) -> Array:
    bits = _unsigned(values).astype(_WIDE)
    width = values.dtype.itemsize * 8
    return np.where(bits > 0, width - 1 - np.floor(np.log2(np.maximum(bits, 1))), width).astype(np.uint32)


def _reversed(values: Array) -> Array:
    bits = _unsigned(values)
    width, one = values.dtype.itemsize * 8, bits.dtype.type(1)
    result = np.zeros_like(bits)
    for place in range(width):
        result |= ((bits >> bits.dtype.type(place)) & one) << bits.dtype.type(width - 1 - place)
    return result


def _table(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Return `lop3`: each result bit is looked up in a table of eight by the bits of three operands."""
    result = np.zeros_like(a)
    for row in range(8):
        terms = [each if row >> place & 1 else ~each for each, place in ((a, 2), (b, 1), (c, 0))]
        result |= np.where(table.astype(np.uint32) >> np.uint32(row) & np.uint32(1), terms[0] & terms[1] & terms[2], 0)
    return result


def _pick_bytes(a: Array, b: Array, selector: Array) -> Array:
    """Return `prmt`: four bytes of eight, each by four bits; the highest of those repeats the byte's sign."""
    pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros_like(a)
    for place in range(4):
        choice = selector >> np.uint32(4 * place) & np.uint32(15)
        byte = (pair >> (8 * (choice & np.uint32(7))).astype(np.uint64) & np.uint64(255)).astype(np.uint32)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result |= np.where(choice & np.uint32(8), sign, byte) << np.uint32(8 * place)
    return result


INTEGERS: dict[str, Operation] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "neg": np.negative, "abs": np.abs,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert, "shl": _shift(left=True),
    "shr": _shift(left=False), "popc": _count_bits, "clz": _leading_zeros, "brev": _reversed, "lop3": _table,
    "prmt": _pick_bytes,
}  # fmt: skip
"""Instructions on integers and bits, by name."""


def multiplied(part: str, a: Array, b: Array) -> Array:
    """Return the low (`lo`) or high half of an integer product, or all of it (`wide`); of 16 or 32 bits if not `lo`."""
    if part == "lo":
        return a * b
    wide = _DOUBLED.get(a.dtype)
    if wide is None:
        raise KeyError(part)
    product = a.astype(wide) * b.astype(wide)
    return product if part == "wide" else (product >> wide(a.dtype.itemsize * 8)).astype(a.dtype)


COMPARISONS: dict[str, Operation] = {
    "eq": np.equal, "ne": lambda a, b: (a < b) | (a > b), "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "neu": np.not_equal, "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b), "equ": lambda a, b: ~((a < b) | (a > b)),
}  # fmt: skip
"""Comparisons of `setp`; those that end in `u` are true where a number is NaN."""
_ROUNDINGS: dict[str, Operation] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _saturated(values: Array, wanted: Any) -> Array:
    limits = np.iinfo(wanted)
    whole = np.nan_to_num(np.trunc(values.astype(_WIDE)), nan=0.0, posinf=2.0**64, neginf=-(2.0**64))
    return np.clip(whole, _WIDE(limits.min), _WIDE(limits.max)).astype(wanted)


def converted(modifiers: list[str], target: str, source: str, values: Array) -> Array:
    """Return `cvt`: numbers of one type as another; integers of floats saturate, as others with `sat`; NaN is zero."""
    if source == "bf16":
        values, source = from_bfloat16(values), "f32"
    if target == "tf32":
        if "rna" not in modifiers:
            raise KeyError("to the nearest even")
        return tf32_bits(values)
    if target == "bf16":
        return bfloat16_bits(values.astype(np.float32))
    wanted = np.dtype(TYPES[target])
    if source[0] == "f":
        for rounding in _ROUNDINGS.keys() & set(modifiers):
            values = _ROUNDINGS[rounding](values)
    if wanted.kind in "iu" and (source[0] == "f" or "sat" in modifiers):
        return _saturated(values, wanted)
    result = values.astype(wanted)
    return np.clip(np.nan_to_num(result), 0, 1).astype(wanted) if "sat" in modifiers and wanted.kind == "f" else result
