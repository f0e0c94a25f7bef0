"""Tolerances: honest rounding passes, trivial answers fail however small the output is."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.tolerance import TOLERANCES, compare, rows_that_agree, surely_agrees

SCALES = st.sampled_from([1e-6, 1e-3, 1.0, 1e4])


def output(scale: float, seed: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    oracle = scale * torch.randn(8, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return oracle, oracle.to(dtype)


@given(SCALES, st.integers(0, 1000), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_rounding_is_within_tolerance(scale: float, seed: int, dtype: torch.dtype) -> None:
    oracle, native = output(scale if dtype is not torch.float16 else 1.0, seed, dtype)
    assert compare(native, oracle, native, "output").agrees
    assert compare(native, oracle, torch.zeros_like(native), "output").agrees


@given(SCALES, st.integers(0, 1000))
def test_trivial_answers_fail_at_every_scale(scale: float, seed: int) -> None:
    oracle, native = output(scale, seed)
    for trivial in (torch.zeros_like(native), torch.full_like(native, native.mean().item()), native.flip(0)):
        assert not compare(trivial, oracle, native, "output").agrees


@given(SCALES, st.integers(0, 1000), st.integers(0, 127), st.sampled_from([1e-2, -1.0, float("nan"), float("inf")]))
def test_one_wrong_element_is_found_and_named(scale: float, seed: int, place: int, change: float) -> None:
    oracle, native = output(scale, seed)
    wrong = native.clone()
    wrong.view(-1)[place] += change * max(scale, abs(wrong.view(-1)[place].item()))
    comparison = compare(wrong, oracle, native, "output")
    assert not comparison.agrees
    assert comparison.message.startswith(f"output[{place // 16}, {place % 16}] is ")
    assert "0.8% of 128 elements are wrong" in comparison.message


def test_not_finite_only_where_the_oracle_is() -> None:
    oracle = torch.tensor([1.0, float("inf"), float("nan"), -float("inf")], dtype=torch.float64)
    native = oracle.float()
    assert compare(native, oracle, native, "output").agrees
    for index, value in [(0, float("nan")), (1, float("nan")), (1, -float("inf")), (2, 0.0), (3, float("inf"))]:
        wrong = native.clone()
        wrong[index] = value
        assert not compare(wrong, oracle, native, "output").agrees


def test_overflow_of_the_reference_itself_is_right() -> None:
    oracle = torch.tensor([1.0, 1e39], dtype=torch.float64)
    native = oracle.float()
    assert compare(native, oracle, native, "output").agrees


def test_integers_must_be_equal() -> None:
    native = torch.arange(10)
    assert compare(native, native, native, "output").agrees
    comparison = compare(native + (native == 3), native, native, "output")
    assert not comparison.agrees
    assert comparison.message == "output[3] is 4, expected 3; 10.0% of 10 elements are wrong"


EIGHT_BITS = st.sampled_from([torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2])


def quantised(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return 500 values of eight bits, as whole numbers that `view` makes values of `dtype` of; none is NaN."""
    return torch.randint(1, 100, (5, 100), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@given(EIGHT_BITS, st.integers(0, 1000), st.integers(0, 7), st.sampled_from([-1, 1, 2]))
def test_few_elements_of_eight_bits_may_be_a_step_away(dtype: torch.dtype, seed: int, number: int, steps: int) -> None:
    native = quantised(dtype, seed)
    actual = native.clone()
    places = torch.randperm(500, generator=torch.Generator().manual_seed(seed))[:number]
    actual.view(-1)[places] += steps
    agrees = compare(actual.view(dtype), native.view(dtype), native.view(dtype), "output").agrees
    assert agrees is (number == 0 or (abs(steps) == 1 and number <= 4))


def test_few_of_a_sparse_result_are_few_of_what_it_has() -> None:
    native = torch.zeros(10_000, dtype=torch.uint8)
    native[:60] = 1
    assert not compare(torch.zeros_like(native), native, native, "output").agrees
    assert not compare(torch.tensor([3], dtype=torch.uint8), *[torch.tensor([2], dtype=torch.uint8)] * 2, "").agrees


@pytest.mark.parametrize(("dtype", "most"), [(torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)])
def test_a_value_without_saturation_is_no_step_away(dtype: torch.dtype, most: float) -> None:
    native = torch.linspace(0, most, 1000).to(dtype)
    actual = native.float()
    actual[-1] = float("nan") if dtype is torch.float8_e4m3fn else float("inf")
    assert not compare(actual.to(dtype), native, native, "output").agrees


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_of_eight_bits_are_compared(dtype: torch.dtype) -> None:
    native = torch.tensor([0.0, 1.0, -2.0, float("nan")] * 100).to(dtype)
    assert compare(torch.tensor([-0.0, 1.0, -2.0, float("nan")] * 100).to(dtype), native, native, "output").agrees
    assert rows_that_agree(native[None, :3], native[None, :3]).all()
    wrong = compare(torch.tensor([0.0, 1.0, 2.0, float("nan")] * 100).to(dtype), native, native, "output")
    assert wrong.message.startswith("output[2] is 2, expected -2; 25.0% of 400 elements are wrong")
    assert not compare(torch.zeros(400).to(dtype), native, native, "output").agrees


def test_places_and_truth_values_have_no_step() -> None:
    for native in (torch.arange(1000), torch.arange(1000, dtype=torch.int16), torch.arange(1000) % 2 == 0):
        actual = native.clone()
        actual[7] = actual[8]
        assert not compare(actual, native, native, "output").agrees


def test_complex_outputs_are_compared_by_their_parts() -> None:
    native = torch.randn(64, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(3))
    oracle = native.to(torch.complex128)
    assert compare(native * (1 + 1e-6), oracle, native, "output").agrees
    assert compare(native.conj().conj(), oracle, native, "output").agrees
    for wrong in (native.conj(), native * 1.01, native * 1j, native.real + 0j):
        assert not compare(wrong, oracle, native, "output").agrees


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_empty_and_zero_outputs(dtype: torch.dtype) -> None:
    empty = torch.empty(0, 4, dtype=dtype)
    assert compare(empty, empty, empty, "output").agrees
    zero = torch.zeros(4, dtype=dtype)
    assert compare(zero, zero.double(), zero, "output").agrees
    assert not compare(zero + 1e-3, zero.double(), zero, "output").agrees


def small_gaussians(rows: int, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`1 - exp(-x²)` of rows normalised to a sum of 1: oracle, float32 as PyTorch has it, and as an honest kernel has it."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    wide, narrow, own = (value / value.abs().sum(1, keepdim=True) for value in (x.double(), x, x.flip(1)))
    kernel = 1.0 - torch.exp2(-(own.flip(1) ** 2) * 1.4426950408889634)
    return 1.0 - torch.exp(-wide * wide), 1.0 - torch.exp(-narrow * narrow), kernel


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_kernel_may_lose_the_digits_that_the_reference_loses(seed: int) -> None:
    oracle, native, kernel = small_gaussians(16, 300, seed)
    assert compare(kernel, oracle, native, "output").agrees
    shuffled = native.flip(0)
    for trivial in (torch.zeros_like(native), torch.full_like(native, oracle.mean().item()), shuffled, native * 1.05):
        assert not compare(trivial, oracle, native, "output").agrees


def test_what_the_reference_does_not_lose_nobody_may() -> None:
    oracle, native = output(1.0, 7)
    assert not compare(native * (1 + 5e-4), oracle, native, "output").agrees
    ties = native.clone()
    ties.view(-1)[::8] += 1.0  # e.g. a threshold that rounding decides
    assert not compare(native * (1 + 5e-4), oracle, ties, "output").agrees


def test_mostly_zeros_are_held_to_the_size_of_the_rest() -> None:
    """A product, less a large number, under a ReLU: the few that are left have the error of the whole product."""
    generator = torch.Generator().manual_seed(5)
    wide = 100 * torch.randn(200_000, generator=generator, dtype=torch.float64)
    threshold = 280.0
    error = 3e-3 * torch.randn(200_000, generator=generator, dtype=torch.float64)  # of float32, in another order
    oracle = (wide - threshold).relu()
    assert (oracle > 0).double().mean() < 0.01
    actual, native = ((wide + sign * error - threshold).relu().float() for sign in (1, -1))
    assert compare(actual, oracle, native, "output").agrees
    assert not compare(torch.zeros_like(actual), oracle, native, "output").agrees
    assert not compare(1.05 * actual, oracle, native, "output").agrees


def test_a_few_rows_are_held_to_what_the_reference_loses_in_its_worst_one() -> None:
    """Softmax of large squares: another order of additions moves a few rows by more than the tolerance."""
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(200, 48, generator=generator, dtype=torch.float64)
    x[3], x[3, :4] = 0.5 * x[3], torch.tensor([30.0, 30.002, 30.004, 30.01])
    oracle = x.square().softmax(dim=1)
    rounding = 1 + 3e-7 * torch.randn(2, 200, 48, generator=generator, dtype=torch.float64)  # of float32
    native, actual = ((x.square() * part).softmax(dim=1).float() for part in rounding)
    assert float(((actual - oracle).abs() / (oracle.mean() + oracle)).max()) > TOLERANCES[torch.float32]
    assert compare(actual, oracle, native, "output").agrees
    off = 3e-4 * (oracle.mean() + oracle)
    few, many = actual.clone(), actual.clone()
    few[5, 7] += 100 * off[5, 7]  # by more than the reference loses anywhere
    many[:40, 7] += off[:40, 7]
    assert not compare(few, oracle, native, "output").agrees
    assert not compare(many, oracle, native, "output").agrees
    assert not compare(torch.zeros_like(actual), oracle, native, "output").agrees


SMALL_BESIDE_LARGE = torch.cat([torch.full((256,), 2e4), torch.linspace(0.4, 0.6, 256)]).double()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_small_results_beside_large_ones_are_held_to_their_own_size(scale: float) -> None:
    oracle = SMALL_BESIDE_LARGE * scale
    native = oracle.float()
    rounded = (oracle * (1 + 1e-5 * torch.randn(512, generator=torch.Generator().manual_seed(1)))).float()
    assert compare(rounded, oracle, native, "output").agrees
    constant = native.clone()
    constant[256:] = 0.5 * scale
    found = compare(constant, oracle, native, "output")
    assert not found.agrees
    assert found.message.startswith("output[256] is ")
    assert not surely_agrees(constant, native)
    assert not rows_that_agree(constant[None], native[None])[0]


@pytest.mark.parametrize(
    ("shape", "dim"),
    [((256, 2), 1), ((64, 3, 4), 1), ((64, 3, 4), 2), ((3, 64, 5, 7), 0), ((10, 1000), 0), ((99, 16), 1)],
)
def test_small_results_between_others_are_held_to_their_own_size(shape: tuple[int, ...], dim: int) -> None:
    size = shape[dim]
    oracle = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place = oracle.movedim(dim, 0)[size // 2]
    place *= 1e-3
    native = oracle.float()
    rounded = (oracle * (1 + 1e-6)).float()
    constant = native.clone()
    constant.movedim(dim, 0)[size // 2] = place.abs().mean().float()
    assert compare(rounded, oracle, native, "output").agrees
    assert not compare(constant, oracle, native, "output").agrees
    assert not surely_agrees(constant, native)
    assert not rows_that_agree(constant.reshape(1, -1), native.reshape(1, -1), shape)[0]


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.05, 0.2, 1.0]))
def test_pieces_of_like_sizes_or_without_a_value_change_nothing(seed: int, factor: float) -> None:
    oracle = torch.randn(4, 512, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    oracle[1] *= factor
    native = oracle.float()
    shifted = native + 0.9e-4 * oracle.abs().mean().float()
    assert compare(shifted, oracle, native, "output").agrees


def test_small_pieces_below_what_rounding_leaves_are_none() -> None:
    decay = (-torch.linspace(0, 18, 65536)).double().exp() * (-torch.linspace(4, 0, 65536)).double().exp()
    assert compare(decay.float().half(), decay, decay.half() * (1 + 2e-4), "output").agrees
    oracle = torch.cat([torch.full((4096,), 1e6), torch.full((4096,), 1e-10)]).double()
    native = oracle.float()
    native[4096:] += 0.05
    assert compare(native.flip(0).flip(0) * (1 + 1e-6), oracle, native, "output").agrees


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    generator = torch.Generator().manual_seed(6)
    oracle = torch.randn(10, 20, generator=generator, dtype=torch.float64)
    oracle[3, 4] = float("inf")
    actual = oracle.float()
    actual[7, 8] += 1.0
    whole = compare(actual, oracle, oracle.float(), "output")
    monkeypatch.setattr("kernels_eval.correctness.tolerance.BLOCK", block)
    monkeypatch.setattr("kernels_eval.correctness.tolerance.NARROW_BLOCK", block)
    monkeypatch.setattr("kernels_eval.correctness.magnitudes.BLOCK", block)
    monkeypatch.setattr("kernels_eval.correctness.magnitudes.NARROW_BLOCK", block)
    monkeypatch.setattr("kernels_eval.correctness.small_pieces.NARROW_BLOCK", block)
    found = compare(actual, oracle, oracle.float(), "output")
    narrow = compare(actual, oracle.float(), oracle.float(), "output")
    assert narrow.message == whole.message
    assert not found.agrees
    assert found.message == whole.message
    assert found.wrong_share == whole.wrong_share == pytest.approx(1 / 200)
    assert (found.max_abs_error, found.max_rel_error) == pytest.approx((whole.max_abs_error, whole.max_rel_error))


@given(
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.floats(-6.0, 38.0),
    st.integers(0, 10_000),
    st.floats(0.0, 2.0),
)
def test_without_an_oracle_in_float64_errors_are_as_numpy_computes_them_in_float64(
    dtype: torch.dtype, exponent: float, seed: int, error: float
) -> None:
    largest = min(10.0**exponent, torch.finfo(dtype).max / 4)
    native = torch.rand(300, generator=torch.Generator().manual_seed(seed)).mul(largest).to(dtype)
    actual = native.clone()
    actual[seed % 300] += error * TOLERANCES[dtype] * largest
    found, wanted = actual.double().numpy(), native.double().numpy()
    off = np.abs(found - wanted)
    scale = np.abs(wanted[wanted != 0]).mean() if wanted.any() else 1e-12
    comparison = compare(actual, native, native, "output")
    assert comparison.max_rel_error is not None
    assert comparison.max_abs_error == pytest.approx(off.max(), rel=1e-6)
    assert comparison.max_rel_error == pytest.approx((off / (scale + np.abs(wanted))).max(), rel=1e-5, abs=1e-12)
    if abs(comparison.max_rel_error - TOLERANCES[dtype]) > 1e-5 * TOLERANCES[dtype] and dtype is torch.float16:
        assert comparison.agrees == (comparison.max_rel_error < TOLERANCES[dtype])  # no wider tolerance in this type


@given(SCALES, st.integers(0, 1000), st.sampled_from([torch.float32, torch.bfloat16]), st.floats(0.0, 3.0))
def test_rows_agree_as_one_output_each_would(scale: float, seed: int, dtype: torch.dtype, error: float) -> None:
    _, native = output(scale, seed, dtype)
    native[2, ::2] = 0.0
    actual = native.clone()
    actual[3, 5] += error * TOLERANCES[dtype] * scale
    actual[4, 0] = float("nan")
    one_by_one = [compare(row, wanted, wanted, "").agrees for row, wanted in zip(actual, native, strict=True)]
    assert rows_that_agree(actual, native).tolist() == one_by_one
    assert not one_by_one[4]


@given(
    st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
    st.integers(0, 10_000),
    st.floats(0.0, 2.0),
    st.sampled_from([0.0, float("nan"), float("inf"), -float("inf"), 60_000.0]),
)
def test_rows_agree_at_the_edge_of_the_tolerance(dtype: torch.dtype, seed: int, error: float, odd: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    native = torch.randn(6, 40, generator=generator).to(dtype)
    native[4, 7] = odd
    noise = error * TOLERANCES[dtype] * torch.randn(6, 40, generator=generator, dtype=torch.float64)
    actual = (native.double() + noise).to(dtype)
    actual[5, 3] = odd
    one_by_one = [compare(row, wanted, wanted, "").agrees for row, wanted in zip(actual, native, strict=True)]
    assert rows_that_agree(actual, native).tolist() == one_by_one


def sums(seed: int, step: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a kernel's, the oracle's and the reference's results of a sum of bfloat16 in which large terms cancel."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(256, 64, generator=generator).bfloat16() for _ in range(2))
    x[::64, 0], y[::64, 0] = 6.4, -2.1
    oracle = torch.relu(x.double() + y.double()) * 0.5 - x.double() / 3
    fused = (torch.relu((x + y).float()) * 0.5 - x.float() / 3).bfloat16()
    fused[::64, 0] += step
    return fused, oracle, torch.relu(x + y) * 0.5 - x / 3


@pytest.mark.parametrize(("step", "agrees"), [(0.012, True), (0.05, False)])
def test_a_few_elements_of_bfloat16_may_be_off_by_a_step_of_the_largest(step: float, agrees: bool) -> None:
    actual, oracle, native = sums(1, step)
    assert compare(actual, oracle, native, "out").agrees is agrees
    more = actual.clone()
    more[::16, :8] += 0.012
    assert not compare(more, oracle, native, "out").agrees, "not so many"


def test_rows_without_elements_agree() -> None:
    assert rows_that_agree(torch.empty(3, 0), torch.empty(3, 0)).tolist() == [True, True, True]


def test_rows_of_whole_numbers_agree_if_they_are_equal() -> None:
    native = torch.arange(12).reshape(3, 4)
    actual = native.clone()
    actual[1, 3] += 1
    assert rows_that_agree(actual, native).tolist() == [True, False, True]


@given(
    st.integers(0, 2**31),
    st.sampled_from(list(TOLERANCES)),
    st.sampled_from([0.0, 0.5, 0.95]),
    st.sampled_from([0.1, 0.9, 1.1, 30.0]),
    st.sampled_from([0.0, 1e-4, 3e-2]),
)
def test_what_surely_agrees_is_right(seed: int, dtype: torch.dtype, zeros: float, distance: float, lost: float) -> None:
    """`distance` of the answer from the reference in tolerances; `lost`: share by which the oracle is elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    oracle = torch.randn(8, 16, generator=generator, dtype=torch.float64)
    oracle[torch.rand(8, 16, generator=generator) < zeros] = 0.0
    native = (oracle * (1.0 + lost * torch.randn(8, 16, generator=generator))).to(dtype)
    size = native.double().abs().mean() + native.double().abs()
    moved = distance * TOLERANCES[dtype] * size * torch.randn(8, 16, generator=generator).clamp(-1, 1)
    actual = (native.double() + moved).to(dtype)
    if surely_agrees(actual, native):
        assert compare(actual, oracle, native, "output").agrees


@given(SCALES, st.integers(0, 1000))
def test_honest_rounding_surely_agrees(scale: float, seed: int) -> None:
    oracle, native = output(scale, seed)
    other = (oracle * (1.0 + 1e-6)).float()
    assert surely_agrees(other, native)
    assert surely_agrees(native * 0, native * 0)
    assert not surely_agrees(native * 1.01, native)


@pytest.mark.parametrize(
    ("actual", "native", "agrees"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.empty(0), torch.empty(0), True),
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")]), False),  # which `compare` looks at
        (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 1.0]), False),
        (torch.tensor([1j]), torch.tensor([1j]), False),
    ],
)
def test_other_values_agree_surely_only_if_they_are_equal(
    actual: torch.Tensor, native: torch.Tensor, agrees: bool
) -> None:
    assert surely_agrees(actual, native) is agrees
