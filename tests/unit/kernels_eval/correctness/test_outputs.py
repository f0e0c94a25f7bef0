"""Returned values of a forward call, taken apart."""

import pytest
import torch

from kernels_eval.correctness.outputs import ONE, flat, is_finite


def test_one_object_is_one_result() -> None:
    assert flat(3) == ([3], ONE)


def test_tuples_and_lists_are_alike_and_unlike_their_only_item() -> None:
    assert flat((1, [2])) == flat([1, (2,)])
    assert flat((1,))[1] != flat(1)[1]
    assert flat((1, (2,)))[1] != flat((1, 2))[1]


def test_dictionaries_are_in_the_order_of_their_keys() -> None:
    assert flat({"b": 2, "a": 1}) == flat({"a": 1, "b": 2})
    assert flat({"b": 2, "a": (1,)})[0] == [1, 2]
    assert flat({"a": 1})[1] != flat({"b": 1})[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_one_value_that_is_not_finite_shows(dtype: torch.dtype, odd: float) -> None:
    values = torch.linspace(-3, 3, 1001)
    assert is_finite(values.to(dtype))
    assert is_finite(values[:0].to(dtype))
    values[500] = odd
    assert is_finite(values.to(dtype)) == bool(values.to(dtype).isfinite().all())


def test_integers_are_finite() -> None:
    assert is_finite(torch.arange(3))
    assert is_finite(torch.tensor([True]))
