"""Inputs that may be replaced by other values: those without a structure that kernels may rely on."""

from collections.abc import Callable

import pytest
import torch

from kernels_eval.reference.factories import PlainDraws

PLAIN = (
    lambda: torch.randn(4, 4),
    lambda: torch.rand(4, 4) * 3.0 - 1.0,
    lambda: torch.rand(4, 4) * torch.rand(()),
    lambda: torch.randn(4, 4).half().float(),
    lambda: torch.randn(4, 8)[:, ::2].permute(1, 0),
    lambda: torch.randn(2, 8).view(4, 4).t().contiguous(),
    lambda: torch.zeros(4, 4),
    lambda: torch.empty(4, 4).normal_(),
    lambda: torch.cat([torch.randn(2, 4), torch.rand(2, 4)]),
    lambda: torch.tensor(0.5),
)
STRUCTURED = (
    lambda: torch.triu(torch.randn(4, 4)),
    lambda: torch.randn(4, 4).softmax(dim=-1),
    lambda: (torch.rand(4, 4) > 0.5).float(),
    lambda: torch.randn(4, 4).abs(),
    lambda: torch.randn(4, 4).sort(dim=1).values,
    lambda: torch.eye(4),
    lambda: torch.arange(4).float(),
    lambda: torch.randint(0, 2, (4, 4)).float() * 2 - 1,
    lambda: torch.randn(4, 4).cumsum(dim=0),
)
SYMMETRIC = (
    lambda: (lambda a: a + a.T)(torch.randn(4, 4)),
    lambda: (lambda a: (a * a.t()) / 2)(torch.randn(4, 4)),
)


RANGED = (
    lambda: torch.randn(4, 4).abs(),
    lambda: torch.rand(4, 4).sqrt().t(),
    lambda: torch.relu(torch.randn(4, 4)) + 1.0,
    lambda: torch.rand(4, 4).mul_(2).exp_(),
    lambda: torch.sigmoid(torch.randn(4, 8))[:, ::2],
    lambda: torch.randint(0, 256, (4, 4), dtype=torch.uint8),
    lambda: torch.randint(-128, 128, (4, 4), dtype=torch.int8).view(2, 8),
)
UNRANGED = (
    lambda: torch.randn(4, 4).softmax(dim=-1).sqrt(),
    lambda: torch.randn(4, 4).tril_(),
    lambda: changed_in_place(lambda x: x.__setitem__((slice(None), 0), 0.0)),
    lambda: changed_in_place(lambda x: x.clamp_(0).round_()),
    lambda: changed_in_place(lambda x: x.masked_fill_(x < 0, 0.0)),
    lambda: torch.randint(0, 2, (4, 4), dtype=torch.uint8).float() * 2 - 1,
    lambda: torch.randint(0, 9, (4, 4)),
    lambda: torch.rand(4, 4).round(),
)


def changed_in_place(change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    value = torch.randn(4, 4)
    change(value)
    return value


@pytest.mark.parametrize("make", PLAIN)
def test_plain_draws_are_found(make: Callable[[], torch.Tensor]) -> None:
    with PlainDraws() as origin:
        value = make()
    assert origin.is_plain(value)


@pytest.mark.parametrize("make", STRUCTURED + SYMMETRIC)
def test_structures_are_left_alone(make: Callable[[], torch.Tensor]) -> None:
    with PlainDraws() as origin:
        value = make()
    assert not origin.is_plain(value)


@pytest.mark.parametrize("make", PLAIN + RANGED)
def test_functions_of_each_element_have_a_range(make: Callable[[], torch.Tensor]) -> None:
    with PlainDraws() as origin:
        value = make()
    assert origin.is_ranged(value)
    assert origin.is_plain(value) == (make in PLAIN)


@pytest.mark.parametrize("make", UNRANGED + SYMMETRIC)
def test_what_rows_or_places_decide_has_none(make: Callable[[], torch.Tensor]) -> None:
    with PlainDraws() as origin:
        value = make()
    assert not origin.is_ranged(value) and not origin.is_plain(value)
