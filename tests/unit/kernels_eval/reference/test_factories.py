"""Inputs that may be replaced by other values: those without a structure that kernels may rely on."""

from collections.abc import Callable

import pytest
import torch

from kernels_eval.reference.factories import MixedDraws, PlainDraws

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


CHANGED = (
    lambda: torch.randn(4, 4).tril_(),
    lambda: changed_in_place(lambda x: x.__setitem__((slice(None), 0), 0.0)),
    lambda: changed_in_place(lambda x: x.clamp_(0)),
    lambda: changed_in_place(lambda x: x.masked_fill_(x < 0, 0.0)),
    lambda: changed_in_place(lambda x: x.add_(x.t().clone())),
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


@pytest.mark.parametrize("make", STRUCTURED + SYMMETRIC + CHANGED)
def test_structures_are_left_alone(make: Callable[[], torch.Tensor]) -> None:
    with PlainDraws() as origin:
        value = make()
    assert not origin.is_plain(value)


def test_draws_are_mixed_before_the_problem_makes_its_inputs_of_them() -> None:
    mixed: list[tuple[torch.Tensor, torch.Tensor]] = []
    even: list[bool] = []

    def mix(value: torch.Tensor, again: Callable[[], torch.Tensor], is_even: bool) -> None:
        mixed.append((value.clone(), again()))
        even.append(is_even)
        value.fill_(3 if value.dtype is torch.uint8 else 0.25)

    with MixedDraws(mix):
        made = [
            torch.rand(4, 4).sqrt(),
            torch.triu(torch.randn(2, 2)),
            torch.empty(3).uniform_(),
            torch.randint(0, 9, (2,), dtype=torch.uint8),
            torch.randint(0, 9, (2,)) // 9,
            torch.ones(2),
            torch.randn(2, requires_grad=True).detach(),
        ]
    assert len(mixed) == 6
    assert even == [False, False, False, True, True, False]
    assert all(first.shape == second.shape and first.dtype is second.dtype for first, second in mixed)
    assert not any(torch.equal(*pair) for pair in mixed[:3])
    expected = [torch.full((4, 4), 0.5), torch.triu(torch.full((2, 2), 0.25)), torch.full((3,), 0.25)]
    expected += [torch.full((2,), 3, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64), torch.ones(2)]
    assert all(map(torch.equal, made, [*expected, torch.full((2,), 0.25)]))


def test_functions_that_get_keywords_alone_run() -> None:
    with PlainDraws() as origin:
        value = torch.randn(4, 4)
        torch.nn.init.constant_(tensor=value, val=0.5)
        scaled = torch.randn(4, 4).requires_grad_()
    assert not origin.is_plain(value)
    assert origin.is_plain(scaled)
