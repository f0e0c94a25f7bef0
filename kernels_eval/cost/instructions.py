"""Instructions of one element of each function, as Triton compiles it for NVIDIA GPUs.

Source: machine code of Triton 3.7 for sm_90, one function an element over a kernel that only copies, disassembled with
cuobjdump and counted by pipe. `fp32`: FADD, FMUL, FFMA, IMAD and moves; `alu`: comparisons, selections, integer and
logical operations; `sfu`: MUFU and conversions to integers. Branches that ordinary values do not take (the slow range
reduction of sine) are left out. Rates: CUDA C++ Programming Guide, "Arithmetic Instructions".
"""

from collections.abc import Mapping
from typing import NamedTuple

from kernels_eval.cost.launch import Operation


class Instructions(NamedTuple):
    """Instructions of one element, by pipe."""

    fp32: float = 0
    alu: float = 0
    sfu: float = 0


FUNCTIONS: Mapping[str, Instructions] = {
    "add": Instructions(1), "mul": Instructions(1), "sub": Instructions(1), "fma": Instructions(1),
    "div": Instructions(5, 3, 1), "div_rn": Instructions(12, 5, 1), "fmod": Instructions(26, 26, 3),
    "min": Instructions(0, 1), "max": Instructions(0, 1), "compare": Instructions(0, 1), "select": Instructions(0, 1),
    "clamp": Instructions(0, 2), "abs": Instructions(0, 1), "floor": Instructions(0, 0, 1),
    "ceil": Instructions(0, 0, 1), "cast": Instructions(0, 1),
    "exp": Instructions(3, 1, 1), "exp2": Instructions(0, 0, 1), "exp10": Instructions(6, 1, 1),
    "expm1": Instructions(14, 10, 2), "log": Instructions(16, 9), "log2": Instructions(18, 9),
    "log10": Instructions(17, 9), "log1p": Instructions(17, 11), "sin": Instructions(16, 10, 1),
    "cos": Instructions(16, 10, 1), "tan": Instructions(18, 11, 2), "sqrt": Instructions(0, 0, 1),
    "sqrt_rn": Instructions(7, 4, 1), "rsqrt": Instructions(0, 0, 1), "rsqrt_rn": Instructions(7, 4, 1),
    "cbrt": Instructions(7, 3, 3), "hypot": Instructions(7, 8, 1), "rcp_rn": Instructions(8, 4, 1),
    "erf": Instructions(22, 4, 1), "erfc": Instructions(36, 7, 4), "tanh": Instructions(12, 5, 2),
    "sinh": Instructions(18, 10, 3), "cosh": Instructions(10, 6, 3), "asin": Instructions(11, 8, 1),
    "acos": Instructions(13, 2, 1), "atan": Instructions(24, 20, 2), "atan2": Instructions(30, 30, 2),
    "asinh": Instructions(28, 20, 4), "acosh": Instructions(42, 22, 1), "atanh": Instructions(24, 15, 1),
    "pow": Instructions(62, 47, 5), "lgamma": Instructions(140, 60, 4), "tgamma": Instructions(86, 65, 5),
    "fast_expf": Instructions(1, 0, 1), "fast_exp10f": Instructions(1, 0, 1), "fast_logf": Instructions(1, 0, 1),
    "fast_log2f": Instructions(0, 0, 1), "fast_log10f": Instructions(1, 0, 1), "fast_sinf": Instructions(1, 0, 1),
    "fast_cosf": Instructions(1, 0, 1), "fast_tanf": Instructions(2, 0, 3), "fast_tanhf": Instructions(0, 0, 1),
    "fast_dividef": Instructions(1, 0, 1), "fast_powf": Instructions(1, 0, 2), "rint": Instructions(0, 0, 1),
    "nearbyint": Instructions(0, 0, 1), "trunc": Instructions(0, 0, 1), "round": Instructions(1, 1, 1),
    "shift": Instructions(0, 1), "bits": Instructions(0, 1), "multiply_high": Instructions(4, 2),
    "divide_integer": Instructions(10, 14, 2), "popc": Instructions(0, 0, 1), "clz": Instructions(0, 1, 1),
}  # fmt: skip
UNKNOWN = Instructions(20, 10, 1)
"""A device function that is not in the table."""
_FP64_SFU = 12.0
"""A special function in double precision: an approximation and its refinement by multiplications."""


def operations_of(name: str, is_double: bool = False) -> tuple[tuple[Operation, float], ...]:
    """Return the operations of one element; in double precision all of them run in that pipe."""
    cost = FUNCTIONS.get(name, UNKNOWN)
    if is_double:
        return (("fp64", cost.fp32 + cost.alu + _FP64_SFU * cost.sfu),)
    pipes: tuple[tuple[Operation, float], ...] = (("fp32", cost.fp32), ("alu", cost.alu), ("sfu", cost.sfu))
    return tuple((pipe, count) for pipe, count in pipes if count)


def product_operation(dtype: str, precision: str) -> tuple[Operation, float]:
    """Return the unit of a matrix product and its operations for each multiply-add.

    `dtype`: Triton's name of the operands' type. `precision`: of float32 operands, `ieee`, `tf32`,
    `tf32x3`, `bf16x3` or `bf16x6`; the number is that of the products.
    """
    if dtype == "fp32":
        rate: dict[str, tuple[Operation, float]] = {
            "ieee": ("dot_fp32", 2.0), "tf32x3": ("dot_tf32", 6.0),
            "bf16x3": ("dot_half", 6.0), "bf16x6": ("dot_half", 12.0),
        }  # fmt: skip
        return rate.get(precision, ("dot_tf32", 2.0))
    if dtype == "fp64":
        return "dot_fp64", 2.0
    return ("dot_byte" if dtype.startswith("fp8") or dtype in ("int8", "uint8") else "dot_half"), 2.0
