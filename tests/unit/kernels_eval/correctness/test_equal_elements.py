"""Places of equal elements, which may come in any order."""

import pytest
import torch

from kernels_eval.correctness.equal_elements import are_places_of_equal_elements


def with_ties(*shape: int) -> torch.Tensor:
    """Return values of which some are equal."""
    return torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(1)).float()


def of_the_last(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the last place of the largest elements, where PyTorch may return another one."""
    return x.shape[dim] - 1 - x.flip(dim).argmax(dim=dim)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_of_equal_largest_elements_is_right(dim: int) -> None:
    x = with_ties(6, 40, 50)
    last, first = of_the_last(x, dim), x.argmax(dim=dim)
    assert not torch.equal(last, first)
    assert are_places_of_equal_elements(last, first, [None, torch.rand(3), x])
    assert are_places_of_equal_elements(last.unsqueeze(dim), first.unsqueeze(dim), [x])
    assert not are_places_of_equal_elements(last, first, [torch.rand(6, 40, 50)])
    assert not are_places_of_equal_elements(x.argmin(dim=dim), first, [x])


def test_equal_elements_of_a_whole_tensor() -> None:
    x = with_ties(6, 40)
    first, last = x.argmax(), of_the_last(x.reshape(-1), 0)
    assert are_places_of_equal_elements(last, first, [x])
    assert not are_places_of_equal_elements(x.argmin(), first, [x])


def test_orders_that_keep_or_turn_equal_elements() -> None:
    x = with_ties(20, 90)
    stable = x.sort(dim=1, stable=True).indices
    turned = 89 - x.flip(1).sort(dim=1, stable=True).indices
    assert not torch.equal(stable, turned)
    assert are_places_of_equal_elements(turned, stable, [x])
    assert are_places_of_equal_elements(turned[:, :8], stable[:, :8], [x])
    again = stable.clone()
    row, place = ((x.sort(dim=1).values.diff(dim=1) == 0).nonzero()[0]).tolist()
    again[row, place + 1] = again[row, place]
    assert not are_places_of_equal_elements(again, stable, [x]), "a place that comes twice"


def test_an_input_of_equal_elements_tells_nothing() -> None:
    x = torch.rand(4, 90)
    right, wrong = x.argmax(dim=1), x.argmin(dim=1)
    masks = torch.ones(4, 90), (torch.rand(4, 90) > 0.5).float(), torch.ones(4, 90, dtype=torch.int64)
    for mask in (*masks, torch.ones(4, 90).to(torch.float8_e4m3fn), torch.ones(4, 90, dtype=torch.complex64)):
        assert not are_places_of_equal_elements(wrong, right, [x, mask])


@pytest.mark.parametrize(
    ("actual", "native"),
    [
        (torch.tensor([90, 0]), torch.tensor([3, 0])),  # out of range
        (torch.tensor([-1, 0]), torch.tensor([3, 0])),
        (torch.tensor([1.0, 0.0]), torch.tensor([3.0, 0.0])),
        (torch.tensor([True, False]), torch.tensor([False, False])),
        (torch.tensor([1, 0], dtype=torch.uint16), torch.tensor([3, 0], dtype=torch.uint16)),
        (torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)),
    ],
)
def test_what_is_no_place(actual: torch.Tensor, native: torch.Tensor) -> None:
    assert not are_places_of_equal_elements(actual, native, [torch.ones(2, 90)])


def test_counts_that_differ_are_wrong() -> None:
    x = with_ties(5, 64)
    counts = torch.stack([row.long().bincount(minlength=200) for row in x])
    assert not are_places_of_equal_elements(counts - 1, counts, [x])
