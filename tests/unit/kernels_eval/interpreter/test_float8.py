"""Types of eight bits in the interpreter: the nearest of all 256 values, ties to even, and no overflow."""

from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl

from kernels_eval.interpreter.triton_patches import arithmetic, float8
from kernels_eval.interpreter.triton_patches.names import upstream

TYPES = [("float8e4nv", 3, 7), ("float8e5", 2, 15)]


def values_of(mantissa_bits: int, bias: int) -> dict[int, float]:
    """Return all finite numbers by their bits, from the definition of the format."""
    found: dict[int, float] = {}
    for bits in range(128):
        exponent, fraction = bits >> mantissa_bits, bits & ((1 << mantissa_bits) - 1)
        whole = fraction / (1 << mantissa_bits) + (exponent > 0)
        found[bits] = whole * 2.0 ** (max(exponent, 1) - bias)
    if mantissa_bits == 3:
        del found[0x7F]  # NaN
    else:
        found = {bits: value for bits, value in found.items() if bits < 0x7C}  # infinity and NaN above
    return found


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = upstream.InterpreterBuilder
    for name in ("create_fp_to_fp", "cast_impl"):
        monkeypatch.setattr(builder, name, getattr(builder, name))
    builder.cast_impl = arithmetic._cast(builder.cast_impl)
    float8.install()


def convert(values: np.ndarray[Any, Any], before: Any, after: Any) -> np.ndarray[Any, Any]:
    handle = upstream.TensorHandle(values, before)
    return upstream.interpreter_builder.create_fp_to_fp(handle, after, None).data


@pytest.mark.parametrize(("name", "mantissa_bits", "bias"), TYPES)
def test_narrowing_takes_the_nearest_value(name: str, mantissa_bits: int, bias: int) -> None:
    known = values_of(mantissa_bits, bias)
    numbers = np.array(sorted(known.values()))
    between = (numbers[1:] + numbers[:-1]) / 2
    given = np.concatenate([numbers, between, between * (1 + 1e-5), between * (1 - 1e-5), [1e30, np.inf]])
    given = np.concatenate([given, -given]).astype(np.float32)
    by_bits = sorted(known)
    expected: list[int] = []
    for value in np.abs(given.astype(np.float64)):
        distances = [abs(min(value, numbers[-1]) - known[bits]) for bits in by_bits]
        nearest = [bits for bits, each in zip(by_bits, distances, strict=True) if each == min(distances)]
        expected.append(min(nearest, key=lambda bits: bits & 1))
    found = convert(given, tl.float32, getattr(tl, name))
    assert (found & 0x7F).tolist() == expected
    assert ((found & 0x80) != 0).tolist() == np.signbit(given).tolist()


@pytest.mark.parametrize(("name", "mantissa_bits", "bias"), TYPES)
@pytest.mark.parametrize("wide", [tl.float16, tl.float32, tl.bfloat16])
def test_widening_is_exact(name: str, mantissa_bits: int, bias: int, wide: Any) -> None:
    known = values_of(mantissa_bits, bias)
    bits = np.array(sorted(known), np.uint8)
    found = convert(bits, getattr(tl, name), wide)
    if wide is tl.bfloat16:
        found = (found.astype(np.uint32) << 16).view(np.float32)
    assert found.tolist() == [known[each] for each in bits.tolist()]


def test_nan_stays_nan_and_other_conversions_are_upstreams() -> None:
    nan = np.array([np.nan], np.float32)
    bits = convert(nan, tl.float32, tl.float8e4nv)
    assert np.isnan(convert(bits, tl.float8e4nv, tl.float32)).all()
    assert torch.from_numpy(convert(np.array([1.5], np.float32), tl.float32, tl.float16)).item() == 1.5
