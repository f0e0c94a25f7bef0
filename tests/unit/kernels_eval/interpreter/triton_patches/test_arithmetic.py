"""bfloat16 and TF32 in the interpreter: to the bit what PyTorch makes of the same values."""

import numpy as np
import pytest
import torch
import triton.language as tl

from kernels_eval.interpreter.triton_patches import arithmetic
from kernels_eval.interpreter.triton_patches.names import upstream


def _values() -> torch.Tensor:
    """Every sixteenth bit pattern's neighbourhood: ties, subnormal numbers, infinities and NaN among them."""
    patterns = torch.arange(0, 1 << 16, 16, dtype=torch.int64) << 16
    near = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0x18000, 0xFFFF], dtype=torch.int64)
    bits = (patterns[:, None] + near[None, :]).reshape(-1) & 0xFFFFFFFF
    return torch.from_numpy(bits.numpy().astype(np.uint32).view(np.float32))


def test_rounding_to_bfloat16_is_pytorchs() -> None:
    values = _values()
    narrowed = arithmetic._narrowed(upstream.TensorHandle(values.numpy(), tl.float32))
    expected = values.bfloat16()
    found = torch.from_numpy(narrowed.data.view(np.int16)).view(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[~expected.isnan()], expected[~expected.isnan()])


def test_widening_loses_nothing() -> None:
    values = _values().bfloat16()
    handle = upstream.TensorHandle(values.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)
    widened = torch.from_numpy(arithmetic._widened(handle).data)
    assert torch.equal(torch.nan_to_num(widened), torch.nan_to_num(values.float()))


@pytest.mark.parametrize(("value", "expected"), [(1.0, 1.0), (1.0 + 2**-10, 1.0 + 2**-10), (1.0 + 2**-11, 1.0)])
def test_tf32_has_ten_bits(value: float, expected: float) -> None:
    assert arithmetic.to_tf32(np.array([value], np.float32))[0] == expected


@pytest.mark.parametrize(("count", "bits"), [(1, 8), (2, 16), (3, 24)])
def test_each_term_in_bfloat16_has_eight_more_bits(count: int, bits: int) -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    terms = arithmetic.bfloat16_terms(upstream.TensorHandle(values, tl.float32), count)
    assert len(terms) == count
    error = np.abs(sum(term.data.astype(np.float64) for term in terms) - values) / np.abs(values)
    assert error.max() <= 2.0**-bits


def test_infinity_is_in_the_first_term_alone() -> None:
    terms = arithmetic.bfloat16_terms(upstream.TensorHandle(np.array([np.inf], np.float32), tl.float32), 3)
    assert [term.data[0] for term in terms] == [np.inf, 0, 0]


def test_a_sum_of_comparisons_is_exclusive_or() -> None:
    """`add i1` and `sub i1` are `xor.pred` in PTX."""
    left, right = np.array([False, False, True, True]), np.array([False, True, False, True])
    builder = upstream.InterpreterBuilder()
    for name in ("create_add", "create_sub"):
        compute = arithmetic._exclusive_of_bits(vars(upstream.InterpreterBuilder)[name])
        found = compute(builder, *(upstream.TensorHandle(each, tl.int1) for each in (left, right)))
        assert found.data.tolist() == [False, True, True, False]


def test_a_histogram_counts_by_the_low_bits() -> None:
    """Ballots on the bits of a bin's number, in PTX: nothing is dropped but what a mask leaves out."""
    compute = arithmetic._by_low_bits(vars(upstream.InterpreterBuilder)["create_histogram"])
    values = upstream.TensorHandle(np.array([-1, 0, 3, 4, 9, 2], np.int32), tl.int32)
    mask = upstream.TensorHandle(np.array([True] * 5 + [False]), tl.int1)
    assert compute(upstream.InterpreterBuilder(), values, 4, mask).data.tolist() == [2, 1, 0, 2]


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [(tl.uint8, -3.7, 0), (tl.uint8, 254.9, 254), (tl.uint8, 300.0, 44), (tl.uint8, 7e4, 255), (tl.uint16, 7e4, 65535),
     (tl.uint32, -1.0, 0), (tl.uint32, 5e9, 2**32 - 1), (tl.uint64, 3e19, 2**64 - 1), (tl.uint8, float("nan"), 0),
     (tl.int8, -3.7, -3), (tl.int8, 200.0, -56), (tl.int8, 7e4, -1), (tl.int16, -7e4, -(2**15)),
     (tl.int32, 3e9, 2**31 - 1), (tl.int32, -float("inf"), -(2**31)), (tl.int32, float("nan"), 0),
     (tl.int64, 1e19, 2**63 - 1), (tl.int64, float("nan"), -(2**63)), (tl.uint64, float("nan"), 2**63)],
)  # fmt: skip
def test_floats_become_integers_as_on_a_gpu(wanted: tl.dtype, value: float, expected: int) -> None:
    """Saturating at 16 bits or more, then cut: `cvt.rzi.u16.f32` of the PTX manual; unsigned measured on an H100."""
    handle = upstream.TensorHandle(np.array([value, 1.5], np.float32), tl.float32)
    assert arithmetic._to_integer(None, handle, wanted).data.tolist() == [expected, 1]


def test_the_upper_half_of_a_product_is_that_of_unsigned_operands() -> None:
    first, second = np.array([-2094967296], np.int32), np.array([660000000], np.int32)
    builder = upstream.InterpreterBuilder
    compute = arithmetic._of_unsigned(vars(builder)["create_umulhi"])
    operands = [upstream.TensorHandle(each, tl.int32) for each in (first, second)]
    expected = ((-2094967296 % 2**32) * 660000000) >> 32
    assert compute(None, *operands).data[0] == expected
