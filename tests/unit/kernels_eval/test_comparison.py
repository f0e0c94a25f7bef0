"""Tolerances: honest rounding passes, trivial answers fail however small the output is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.comparison import TOLERANCES, compare

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


@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_empty_and_zero_outputs(dtype: torch.dtype) -> None:
    empty = torch.empty(0, 4, dtype=dtype)
    assert compare(empty, empty, empty, "output").agrees
    zero = torch.zeros(4, dtype=dtype)
    assert compare(zero, zero.double(), zero, "output").agrees
    assert not compare(zero + 1e-3, zero.double(), zero, "output").agrees
