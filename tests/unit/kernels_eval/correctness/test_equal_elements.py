"""Places of equal elements, which may come in any order where PyTorch promises none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_eval.correctness.equal_elements import are_places_of_equal_elements
from kernels_eval.correctness.outputs import ONE, Expected, flat


def with_ties(*shape: int, values: int = 20) -> torch.Tensor:
    """Return whole numbers of which many are equal."""
    return torch.randint(0, values, shape, generator=torch.Generator().manual_seed(1))


def with_one_tie(x: torch.Tensor) -> torch.Tensor:
    """Return rows of which one has its largest element twice, at its ends."""
    x[1, 0] = x[1, -1] = x[1].max()
    return x


def turned_argsort(x: torch.Tensor) -> torch.Tensor:
    """Return an ascending order in which the last of equal elements comes first."""
    return x.shape[-1] - 1 - x.flip(-1).sort(dim=-1, stable=True).indices


def of_the_last(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Return the last place of the largest elements."""
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim=dim)


def accepts(actual: torch.Tensor, reference: Callable[..., Any], *inputs: Any) -> bool:
    """Return whether places are taken for the last output of a reference, from which they have to differ."""
    native = [value.clone() for value in flat(reference(*(value.clone() for value in inputs)))[0]]
    assert not torch.equal(actual, native[-1])
    expected = Expected(native, native, frozenset(), ONE, call_again=lambda given: reference(*given))
    return are_places_of_equal_elements(actual, expected, len(native) - 1, inputs)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint16, torch.float32, torch.bfloat16])
def test_an_order_may_turn_equal_elements(dtype: torch.dtype) -> None:
    x = with_ties(20, 90).to(dtype)
    turned = turned_argsort(with_ties(20, 90))
    assert accepts(turned, lambda x: x.argsort(dim=1), x)
    assert accepts(turned, lambda x: x.sort(dim=1), x)
    assert accepts(turned.int(), lambda x: x.sort(stable=False).indices.int(), x)
    assert accepts(turned.T, lambda y: y.argsort(dim=0), x.T)
    assert accepts(turned[0], lambda x: x[0].argsort(), x)
    assert accepts(turned, lambda y: (y.float() * 0.5).argsort(dim=1), x)
    assert not accepts(turned, lambda x: x.sort(dim=1, stable=True), x), "the problem asks for an order"


def test_the_largest_and_the_middle_may_be_any_of_equal_elements() -> None:
    x = with_ties(20, 90).float()
    last = x.sort(dim=1, stable=True).indices.flip(1)
    assert accepts(last[:, :8], lambda x: x.topk(8), x)
    assert accepts(last[:, 0], lambda x: x.topk(1).indices.squeeze(1), x)
    middle = turned_argsort(x)[:, 44]
    for operator in (torch.median, torch.nanmedian, lambda x, dim: x.kthvalue(45, dim)):
        assert accepts(middle, lambda x, of=operator: of(x, 1), x)
        assert accepts(middle[:, None], lambda x, of=operator: of(x, 1).indices[:, None], x)


def test_places_that_are_wrong() -> None:
    x = with_ties(20, 90).float()
    right = x.topk(8).indices
    zeros, shifted = torch.zeros_like(right), right.roll(1, dims=0)
    twice, far, negative = right.clone(), right.clone(), right.clone()
    twice[:, 1] = twice[:, 0]
    far[3, 2], negative[3, 2] = 90, -1
    for wrong in (zeros, shifted, twice, far, negative, right.flip(1), x.topk(8, largest=False).indices):
        assert not accepts(wrong, lambda x: x.topk(8), x)
    assert (x.gather(1, twice) == x.gather(1, right)).all(dim=1).any(), "of these rows only the places tell"


def test_a_place_that_comes_twice_in_one_row() -> None:
    x = with_ties(20, 90).float()
    right = x.topk(8).indices
    once = right.clone()
    row = int((x.gather(1, right).diff(dim=1)[:, 0] == 0).nonzero()[0])
    once[row, 1] = once[row, 0]
    assert torch.equal(x.gather(1, once), x.gather(1, right))
    assert not accepts(once, lambda x: x.topk(8), x)


def test_what_decides_is_not_the_input() -> None:
    x, y = with_ties(20, 90).float(), torch.rand(20, 90)
    mask = (y > 0.5).float()
    assert not accepts(turned_argsort(x), lambda x, y: (x + y).argsort(dim=1), x, y), "a second key"
    assert not accepts(y.argmin(dim=1), lambda y, ones: y.topk(1).indices[:, 0] * ones.argmax(), y, torch.ones(3))
    assert not accepts((y - 9 * mask).topk(3).indices, lambda y, mask: (y * mask).topk(3), y, mask)


def test_an_input_that_the_reference_changes() -> None:
    def before(x: torch.Tensor) -> Any:
        found = x.topk(8)
        x.zero_()
        return found

    x = with_ties(20, 90).float()
    assert accepts(turned_argsort(x).flip(1)[:, :8], before, x)
    assert not accepts(torch.arange(8).expand(20, 8), before, x)
    assert accepts(turned_argsort(x.clamp(5, 9)), lambda x: x.clamp_(5, 9).argsort(dim=1), x)
    assert not accepts(turned_argsort(x.clamp(5, 9)), lambda x: x.argsort(dim=1), x)


@pytest.mark.parametrize("operator", [torch.argmax, torch.max])
def test_the_first_of_equal_largest_elements_is_promised_but_by_chance(operator: Callable[..., Any]) -> None:
    x = with_one_tie(torch.rand(40, 50))
    assert accepts(of_the_last(x), lambda x: operator(x, dim=1), x)
    assert accepts(of_the_last(x)[:, None], lambda x: operator(x, dim=1, keepdim=True), x)
    for many in (with_ties(40, 50).float(), torch.rand(40, 50).mul(2).clamp(max=1), (torch.rand(40, 50) > 0.5).float()):
        assert not accepts(of_the_last(many), lambda x: operator(x, dim=1), many)
    assert not accepts(x.argmin(dim=1), lambda x: operator(x, dim=1), x)


def test_equal_elements_of_a_whole_tensor() -> None:
    x = with_one_tie(torch.rand(6, 40))
    x[1, 0] = x[1, -1] = 2
    last = of_the_last(x.reshape(-1))
    assert accepts(last, torch.argmax, x)
    assert accepts(last.reshape(1, 1), lambda x: x.argmax(dim=None, keepdim=True), x)
    assert not accepts(x.argmin(), torch.argmax, x)
    mask = (x > 0.5).float()
    assert not accepts(of_the_last(mask.reshape(-1)), torch.argmax, mask)


def test_results_that_are_no_places() -> None:
    x = with_ties(20, 90)
    assert not accepts(turned_argsort(x).float(), lambda x: x.argsort(dim=1).float(), x)
    assert not accepts(torch.ones(20, dtype=torch.int64), lambda x: x.sum(dim=1), x)
    assert not accepts(turned_argsort(x) + 1, lambda x: x.argsort(dim=1) + 1, x)
    sorted_row = x[0].sort().values
    places = torch.searchsorted(sorted_row, sorted_row, right=True) - 1
    assert not accepts(places, lambda row: torch.searchsorted(row, row), sorted_row)


def test_a_reference_that_cannot_be_called_again() -> None:
    x = with_ties(20, 90)
    expected = Expected([x.argsort(dim=1)], [], frozenset(), ONE)
    assert not are_places_of_equal_elements(turned_argsort(x), expected, 0, [x])
