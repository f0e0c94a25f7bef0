"""Each function of libdevice against Python's own mathematics, one value at a time."""

import ast
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import triton
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.device_functions import FUNCTIONS
from kernels_eval.trace.kernel_syntax import ForbiddenSyntaxError, checked_tree
from kernels_eval.trace.schema import KernelSource, ModuleName

STUB = Path(triton.__file__).parent / "language" / "extra" / "libdevice.py"
DECLARED = [node.name for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.FunctionDef)]
ONLY_AMD = {"fast_tanhf"}
FLOATS = [-3.5, -2.5, -1.25, -0.5, -0.0, 0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 4.75, 17.25]
POSITIVE = [0.25, 0.5, 1.0, 1.5, 2.75, 9.0]
UNIT = [-0.9, -0.5, 0.0, 0.25, 0.75]

REFERENCES: dict[str, tuple[list[float], Callable[[float], float]]] = {
    **{
        name: (FLOATS, getattr(math, name))
        for name in (
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "atan",
            "exp",
            "expm1",
            "erf",
            "erfc",
            "cbrt",
        )
        if hasattr(math, name)
    },
    **{name: (POSITIVE, getattr(math, name)) for name in ("log", "log2", "log10", "log1p", "sqrt", "lgamma")},
    **{name: (UNIT, getattr(math, name)) for name in ("asin", "acos", "atanh")},
    "acosh": ([1.0, 1.5, 7.0], math.acosh),
    "tgamma": ([-2.5, -1.5, -0.5, 0.5, 1.0, 4.0, 5.5], math.gamma),
    "exp2": (FLOATS, lambda x: 2.0**x),
    "exp10": (FLOATS, lambda x: 10.0**x),
    "rsqrt": (POSITIVE, lambda x: x**-0.5),
    "rcbrt": (POSITIVE, lambda x: x ** (-1 / 3)),
    "sinpi": (FLOATS, lambda x: math.sin(math.pi * x)),
    "cospi": (FLOATS, lambda x: math.cos(math.pi * x)),
    "round": (FLOATS, lambda x: math.copysign(math.floor(abs(x) + 0.5), x)),
    "llround": (FLOATS, lambda x: math.copysign(math.floor(abs(x) + 0.5), x)),
    "rint": (FLOATS, round),
    "llrint": (FLOATS, round),
    "nearbyint": (FLOATS, round),
    "floor": (FLOATS, math.floor),
    "ceil": (FLOATS, math.ceil),
    "trunc": (FLOATS, math.trunc),
    "saturatef": (FLOATS, lambda x: min(1.0, max(0.0, x))),
    "normcdf": (FLOATS, lambda x: 0.5 * math.erfc(-x / math.sqrt(2))),
    "erfcx": (POSITIVE, lambda x: math.exp(x * x) * math.erfc(x)),
    "ilogb": (POSITIVE, lambda x: math.frexp(x)[1] - 1),
    "logb": (POSITIVE, lambda x: math.frexp(x)[1] - 1),
    "isnan": ([*FLOATS, math.nan, math.inf], math.isnan),
    "isinf": ([*FLOATS, math.nan, -math.inf], math.isinf),
    "finitef": ([*FLOATS, math.nan, -math.inf], math.isfinite),
    "signbit": (FLOATS, lambda x: math.copysign(1, x) < 0),
    "cyl_bessel_i0": (POSITIVE, lambda x: _series(0, x, 1)),
    "cyl_bessel_i1": (POSITIVE, lambda x: _series(1, x, 1)),
    "j0": (FLOATS[:-1], lambda x: _series(0, x, -1)),  # terms of the series cancel at large arguments
    "j1": (FLOATS[:-1], lambda x: _series(1, x, -1)),
}
INVERSES = {"erfinv": math.erf, "normcdfinv": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), "erfcinv": math.erfc}
PAIRS: dict[str, Callable[[float, float], float]] = {
    "pow": lambda x, y: abs(x) ** y, "atan2": math.atan2, "fmod": math.fmod, "remainder": math.remainder,
    "hypot": math.hypot, "rhypot": lambda x, y: 1 / math.hypot(x, y), "copysign": math.copysign,
    "fdim": lambda x, y: max(x - y, 0.0), "fast_dividef": lambda x, y: x / y,
}  # fmt: skip
INTEGERS: dict[str, Callable[[int], int]] = {
    "popc": lambda x: (x & 0xFFFFFFFF).bit_count(),
    "clz": lambda x: 32 - (x & 0xFFFFFFFF).bit_length(),
    "ffs": lambda x: (x & -x).bit_length(),
    "brev": lambda x: int(f"{x & 0xFFFFFFFF:032b}"[::-1], 2),
}
integers = st.integers(-(2**31), 2**31 - 1)
singles = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)


def _series(order: int, x: float, sign: int) -> float:
    """Sum the series of a Bessel function of the first kind (modified: `sign` 1)."""
    return sum(
        sign**k * (x / 2) ** (2 * k + order) / (math.factorial(k) * math.factorial(k + order)) for k in range(60)
    )


def single(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def test_every_function_that_triton_declares_is_there_and_may_be_used() -> None:
    assert set(DECLARED) - ONLY_AMD <= FUNCTIONS.keys()
    for name in DECLARED:
        checked_tree(_caller(name))
    with pytest.raises(ForbiddenSyntaxError):
        checked_tree(_caller("core"))


def _caller(name: str) -> KernelSource:
    """Return a kernel that calls a function of libdevice."""
    source = f"def kernel(x):\n    return libdevice.{name}(x)\n"
    return KernelSource(
        number=0, name="kernel", source=source, line=1, globals={"libdevice": ModuleName(name="libdevice")}
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", REFERENCES)
def test_functions_of_one_float(name: str, dtype: Any) -> None:
    values, reference = REFERENCES[name]
    array = np.array(values, dtype)
    expected = [float(reference(float(value))) for value in array]
    tolerance = 1e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(FUNCTIONS[name](array).astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", INVERSES)
def test_inverses_give_back_the_argument(name: str) -> None:
    values = np.array([0.01, 0.2, 0.5, 0.8, 0.99])
    np.testing.assert_allclose([INVERSES[name](x) for x in FUNCTIONS[name](values)], values, rtol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_floats(name: str) -> None:
    pairs = [(x, y) for x in FLOATS for y in (-2.0, -0.5, 0.75, 3.0) if name != "pow" or x > 0]
    x, y = np.array(pairs).T.copy()
    np.testing.assert_allclose(FUNCTIONS[name](x, y).astype(np.float64), [PAIRS[name](*p) for p in pairs], rtol=1e-12)


@given(integers)
def test_bits_of_integers(value: int) -> None:
    array = np.array([value], np.int32)
    for name, reference in INTEGERS.items():
        assert int(FUNCTIONS[name](array)[0]) == reference(value), name


@given(integers, integers)
def test_products_and_means_of_integers(x: int, y: int) -> None:
    a, b = np.array([x], np.int32), np.array([y], np.int32)
    assert int(FUNCTIONS["mulhi"](a, b)[0]) == (x * y) >> 32
    assert int(FUNCTIONS["hadd"](a, b)[0]) == (x + y) >> 1
    assert int(FUNCTIONS["rhadd"](a, b)[0]) == (x + y + 1) >> 1
    low = x & 0xFFFFFF, y & 0xFFFFFF
    signed = [part - (1 << 24) if part >> 23 else part for part in low]
    assert (int(FUNCTIONS["mul24"](a, b)[0]) - signed[0] * signed[1]) % (1 << 32) == 0


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 7), min_size=4, max_size=4))
def test_bytes_are_chosen_from_eight(x: int, y: int, chosen: list[int]) -> None:
    eight = x.to_bytes(4, "little") + y.to_bytes(4, "little")
    selector = sum(place << (4 * index) for index, place in enumerate(chosen))
    arrays = [np.array([value], np.uint32).view(np.int32) for value in (x, y, selector)]
    expected = int.from_bytes(bytes(eight[place] for place in chosen), "little")
    assert int(FUNCTIONS["byte_perm"](*arrays)[0]) == expected


@given(singles, singles)
def test_directed_rounding_encloses_the_exact_result(x: float, y: float) -> None:
    for name, exact in (("add", Fraction(x) + Fraction(y)), ("mul", Fraction(x) * Fraction(y))):
        if abs(exact) > 1e37 or 0 < abs(exact) < 1e-36:
            continue
        arrays = np.array([x], np.float32), np.array([y], np.float32)
        near, zero, down, up = (Fraction(float(FUNCTIONS[f"{name}_r{mode}"](*arrays)[0])) for mode in "nzdu")
        # 64 bits hold sums of singles that are less than 2^40 apart, and all products
        if name == "mul" or min(abs(x), abs(y)) * 2**38 > max(abs(x), abs(y)):
            assert down <= exact <= up
            assert near == Fraction(single(float(exact))) or abs(near - exact) <= min(exact - down, up - exact)
            assert abs(zero) <= abs(exact)
            assert zero in (down, up)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("float2int_rn", 2.5, 2), ("float2int_rz", -2.7, -2), ("float2int_rd", -2.2, -3), ("float2int_ru", 2.2, 3),
        ("float2int_rn", 1e20, 2**31 - 1), ("float2int_rn", -1e20, -(2**31)), ("float2int_rn", math.nan, 0),
        ("float2uint_rn", -1.0, 0), ("float2uint_rz", 4e9, 4_000_000_000), ("float2ll_rn", 1e30, 2**63 - 1),
        ("float2ll_rn", math.nan, -(2**63)), ("float2ull_rn", 1.8e19, int(np.float32(1.8e19))),
    ],
)  # fmt: skip
def test_conversions_saturate(name: str, value: float, expected: int) -> None:
    assert int(FUNCTIONS[name](np.array([value], np.float32))[0]) == expected


def test_conversions_of_integers_round_as_named() -> None:
    odd = np.array([(1 << 24) + 1], np.int32)
    assert [float(FUNCTIONS[f"int2float_r{mode}"](odd)[0]) - (1 << 24) for mode in "nzdu"] == [0, 0, 0, 2]
    assert float(FUNCTIONS["uint2float_rn"](np.array([-1], np.int32))[0]) == 2.0**32


@pytest.mark.parametrize("order", [0, 1, 2, 5, -3])
def test_bessel_functions_of_any_order_follow_their_recurrence(order: int) -> None:
    x = np.array([0.5, 1.0, 3.0, 10.0])
    for name in ("jn", "yn"):
        before, here, after = (FUNCTIONS[name](np.full(4, order + step, np.int32), x) for step in (-1, 0, 1))
        np.testing.assert_allclose(before + after, 2 * order / x * here, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(FUNCTIONS["jn"](np.full(4, 0, np.int32), x), FUNCTIONS["j0"](x), rtol=1e-9)
    np.testing.assert_allclose(FUNCTIONS["yn"](np.full(4, 1, np.int32), x), FUNCTIONS["y1"](x), rtol=1e-9)


def test_halves_of_a_double_are_put_together_again() -> None:
    values = np.array([math.pi, -1e300])
    high, low = FUNCTIONS["double2hiint"](values), FUNCTIONS["double2loint"](values)
    assert (FUNCTIONS["hiloint2double"](high.view(np.int32), low.view(np.int32)) == values).all()


def test_fast_sines_lose_what_their_argument_loses_in_turns() -> None:
    """`__sinf` multiplies by 1 / (2 pi), rounded towards zero, and takes MUFU.SIN of it."""
    small, large = (np.linspace(-1, 1, 999, dtype=np.float32) * np.float32(size) for size in (3, 1e5))
    for name, exact in (("fast_sinf", np.sin), ("fast_cosf", np.cos)):
        near, far = (abs(FUNCTIONS[name](x) - exact(x.astype(np.float64))).max() for x in (small, large))
        assert near < 1e-6
        assert 1e-3 < far < 1e-2


def test_a_fast_quotient_by_a_large_number_is_zero() -> None:
    x, y = np.array([1e38, 1e38, -1.0, 1.0], np.float32), np.array([2e38, 8e37, 3e38, np.inf], np.float32)
    assert FUNCTIONS["fast_dividef"](x, y).tolist() == [0.0, pytest.approx(1.25), 0.0, 0.0]
