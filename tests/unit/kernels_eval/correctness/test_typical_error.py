"""The typical error of outputs in 16 bits: honest rounding passes, what is computed from a sample does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.tolerance import TOLERANCES, compare, rows_that_agree, surely_agrees

HALVES = st.sampled_from([torch.float16, torch.bfloat16])
STEP = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
SHAPES = st.sampled_from([(), (1,), (7,), (3, 5), (16, 300), (2, 3, 64, 64)])


def drawn(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agree(actual: torch.Tensor, oracle: torch.Tensor, native: torch.Tensor) -> bool:
    """Return if `compare` finds one output right; the shortcuts of timed rounds never pass what it refuses."""
    agrees = compare(actual, oracle, native, "output").agrees
    assert agrees or not surely_agrees(actual, native)
    by_native = compare(actual, native, native, "output").agrees
    assert by_native is bool(rows_that_agree(actual.reshape(1, -1), native.reshape(1, -1)))
    return agrees


@given(HALVES, SHAPES, st.integers(0, 1000), st.sampled_from([1e-4, 1e-2, 1.0, 1e3]), st.sampled_from([0.0, 0.97]))
def test_one_rounding_and_a_rounded_intermediate_pass(
    dtype: torch.dtype, shape: tuple[int, ...], seed: int, scale: float, zeros: float
) -> None:
    first, second = drawn(shape, seed, scale), drawn(shape, seed + 1)
    kept = drawn(shape, seed + 2) > math.sqrt(2) * torch.erfinv(torch.tensor(2 * zeros - 1, dtype=torch.float64))
    oracle = torch.where(kept, first * second, 0.0)  # as behind a ReLU
    once = oracle.to(dtype)
    twice = torch.where(kept, first.to(dtype).double() * second, 0.0).to(dtype)
    for actual, native in ((once, once), (once, twice), (twice, once)):
        assert agree(actual, oracle, native)


@given(HALVES, st.integers(0, 1000), st.sampled_from([-1, 1]))
def test_a_single_number_may_be_a_step_away(dtype: torch.dtype, seed: int, sign: int) -> None:
    oracle = drawn((), seed)
    native = oracle.to(dtype)
    next_one = (native.view(torch.int16) + sign).view(dtype)
    assert agree(next_one, oracle, native)
    assert not agree((oracle * (1 + sign * 6 * STEP[dtype])).to(dtype), oracle, native)


def sampled_norm(dtype: torch.dtype, columns: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norms of 16 rows from a quarter of their 64-byte pieces: the answer, the oracle and an honest answer."""
    x = drawn((16, columns), seed).to(dtype).double()
    pieces = x.reshape(16, -1, 4, 32)[:, :, 0]
    oracle = torch.linalg.vector_norm(x, dim=1)
    return (4.0 * pieces.square().sum(dim=(1, 2))).sqrt().to(dtype), oracle, oracle.to(dtype)


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_norms_of_a_sample_are_refused_though_each_is_within_its_tolerance(seed: int) -> None:
    actual, oracle, native = sampled_norm(torch.float16, 24576, seed)
    found = compare(actual, oracle, native, "output")
    assert found.max_rel_error is not None
    assert found.max_rel_error < TOLERANCES[torch.float16]
    assert not agree(actual, oracle, native)
    assert not surely_agrees(actual, native)
    assert "the typical error is 0." in found.message
    assert "expected at most 0.42%" in found.message
    assert agree(native, oracle, native)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float16, 0.006), (torch.bfloat16, 0.0095)])
def test_what_is_wrong_by_less_than_the_tolerance_everywhere_is_refused(dtype: torch.dtype, off: float) -> None:
    oracle = 2 + drawn((256, 256), 3).abs()
    native = oracle.to(dtype)
    actual = (oracle * (1 + off)).to(dtype)
    found = compare(actual, oracle, native, "output 1")
    assert not agree(actual, oracle, native)
    assert found.message.startswith("output 1: the typical error is 0.")
    assert found.wrong_share == 0.0
    assert found.max_rel_error is not None
    assert found.max_rel_error < TOLERANCES[dtype]
    rows = rows_that_agree(torch.stack([native[0], actual[0], native[2]]), native[:3])
    assert rows.tolist() == [True, False, True]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_few_outliers_within_the_tolerance_pass(dtype: torch.dtype) -> None:
    oracle = drawn((100, 100), 4)
    native = oracle.to(dtype)
    actual = native.clone()
    actual.view(-1)[::50] += 0.9 * TOLERANCES[dtype] * native.abs().mean()
    assert agree(actual, oracle, native)


@pytest.mark.parametrize(("dtype", "lost"), [(torch.float16, 0.009), (torch.bfloat16, 0.02)])
def test_a_kernel_may_lose_what_the_reference_loses(dtype: torch.dtype, lost: float) -> None:
    oracle = drawn((200, 200), 5)
    size = lost * oracle.abs().mean()
    native, actual = ((oracle + size * drawn((200, 200), seed).sign()).to(dtype) for seed in (6, 7))
    assert agree(actual, oracle, native)
    assert not agree(actual, oracle, oracle.to(dtype))


def test_ties_that_rounding_decides_are_no_loss_of_the_reference() -> None:
    oracle = 2 + drawn((200, 200), 5).abs()
    native = oracle.half()
    native.view(-1)[::8] += 1.0
    assert agree(oracle.half(), oracle, native)
    assert not agree((oracle * 1.009).half(), oracle, native)


@pytest.mark.parametrize("columns", [1024, 2048])
def test_a_product_added_up_in_float16_passes(columns: int) -> None:
    a, b = drawn((64, columns), 9).half(), drawn((columns, 64), 10).half()
    total = torch.zeros(64, 64, dtype=torch.float16)
    for first in range(0, columns, 16):
        piece = slice(first, first + 16)
        total = (total.float() + a[:, piece].float() @ b[piece].float()).half()
    oracle = a.double() @ b.double()
    assert agree(total, oracle, oracle.half())


@given(HALVES, st.integers(0, 100))
def test_signs_and_whole_numbers_that_rounding_decides_pass(dtype: torch.dtype, seed: int) -> None:
    x = drawn((50, 50), seed, 3.0)
    for operation in (torch.sign, torch.round):
        oracle, native = operation(x), operation(x.to(dtype))
        assert agree(operation(x).to(dtype), oracle, native)
        assert agree(native, oracle, native)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_infinities_and_nan_count_nothing(dtype: torch.dtype) -> None:
    oracle = drawn((40, 40), 11).abs() + 2
    oracle[0, :3] = torch.tensor([float("inf"), float("nan"), 1e39])
    native = oracle.to(dtype)
    assert agree(native, oracle, native)
    off = torch.where(oracle.isfinite() & (oracle < 100), oracle * 1.0095, oracle).to(dtype)
    found = compare(off, oracle, native, "output")
    assert found.agrees or "typical error" in found.message
    assert not agree(off, native, native)


@given(st.sampled_from([torch.float32, torch.float64]), st.integers(0, 100))
def test_wider_types_are_held_to_the_tolerance_of_their_elements_alone(dtype: torch.dtype, seed: int) -> None:
    oracle = drawn((30, 30), seed)
    native = oracle.to(dtype)
    assert agree(native * (1 + 0.95 * TOLERANCES[dtype]), oracle, native)


@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_long_rows_are_held_to_the_same(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    for module, name in (("tolerance", "BLOCK"), ("tolerance", "NARROW_BLOCK"), ("typical_error", "BLOCK")):
        monkeypatch.setattr(f"kernels_eval.correctness.{module}.{name}", block)
    native = (2 + drawn((3, 50), 12).abs()).half()
    actual = native.clone()
    actual[1] *= 1.009
    actual[2, 0] *= 1.009
    assert rows_that_agree(actual, native).tolist() == [True, False, True]
    assert [compare(row, near.double(), near, "").agrees for row, near in zip(actual, native, strict=True)] == [
        True,
        False,
        True,
    ]
