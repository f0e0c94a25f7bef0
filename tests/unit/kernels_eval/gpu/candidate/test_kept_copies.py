"""Copies of weights that host code keeps: they follow the weights, and nothing else does."""

from collections.abc import Callable

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernels_eval.gpu.candidate.operator_guard import OperatorGuard
from kernels_eval.gpu.device import cuda_driver


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


def guard_for(*weights: torch.Tensor, enforce: bool = True) -> OperatorGuard:
    guard = OperatorGuard(enforce)
    guard.copies.watch(weights)
    guard.start(poisons=True)
    return guard


def change(guard: OperatorGuard, *weights: torch.Tensor) -> None:
    for weight in weights:
        weight.mul_(torch.rand(weight.shape) + 0.5)
    guard.copies.renew()


def in_two_pieces(weight: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(weight.shape[0], weight.shape[1] + 3)
    made[:, :2] = weight[:, :2]
    made[:, 2 : weight.shape[1]].copy_(weight[:, 2:])
    return made


@pytest.mark.parametrize(
    "copy",
    [
        lambda w: w.t().contiguous(),
        lambda w: w.to(torch.float16),
        lambda w: w.double().t().contiguous().clone(),
        lambda w: torch.nn.functional.pad(w, (0, 3)),
        lambda w: torch.cat([w, w[:2]]),
        lambda w: torch.stack([w, w]),
        lambda w: torch.nn.Parameter(w.detach().clone(), requires_grad=False),
        in_two_pieces,
    ],
)
def test_copies_follow_the_weight(copy: Callable[[torch.Tensor], torch.Tensor]) -> None:
    weight = torch.randn(4, 6)
    guard = guard_for(weight)
    with guard:
        kept = copy(weight)
    for _ in range(2):
        change(guard, weight)
        assert torch.equal(kept, copy(weight))


def test_a_part_that_was_filled_stays_filled() -> None:
    weight = torch.randn(4, 6)
    guard = guard_for(weight)
    with guard:
        kept = weight.clone()
        kept[:, :2].zero_()
        kept[0].fill_(3)
    change(guard, weight)
    expected = weight.clone()
    expected[:, :2], expected[0] = 0, 3
    assert torch.equal(kept, expected)


def test_a_copy_of_two_weights_follows_both() -> None:
    first, second = torch.randn(4, 6), torch.randn(2, 6)
    guard = guard_for(first, second)
    with guard:
        kept = torch.cat([first, second]).t().contiguous()
    change(guard, second)
    assert torch.equal(kept, torch.cat([first, second]).t())


def test_what_is_computed_stays() -> None:
    weight = torch.randn(4, 6)
    guard = guard_for(weight, enforce=False)
    with guard:
        doubled = weight * 2
        turned = doubled.t().contiguous()
    before = doubled.clone()
    change(guard, weight)
    assert torch.equal(doubled, before)
    assert torch.equal(turned, before.t())


def test_copies_of_inputs_and_of_timed_calls_stay() -> None:
    weight, given = torch.randn(4, 6), torch.randn(4, 6)
    guard = guard_for(weight)
    with guard:
        copied = given.clone()
        guard.start(poisons=False)
        timed = weight.clone()
    before = weight.clone()
    change(guard, weight)
    assert torch.equal(copied, given)
    assert torch.equal(timed, before), "a timed call is not looked at"


def test_what_nobody_keeps_takes_no_memory() -> None:
    weight = torch.randn(4, 6)
    guard = guard_for(weight)
    with guard:
        half = weight.half()
        turned = half.t().contiguous()
    ends = [StorageWeakRef(each.untyped_storage()) for each in (half, turned)]
    del half, turned
    assert ends[1].expired()
    guard.start(poisons=True)
    assert ends[0].expired(), "at the next call nothing needs it any more"
    change(guard, weight)


def test_a_call_that_copies_again_and_again_does_not_keep_it_all() -> None:
    weight = torch.randn(4, 6)
    guard = guard_for(weight)
    ends: list[StorageWeakRef] = []
    with guard:
        for _ in range(500):
            half = weight.half()
            ends.append(StorageWeakRef(half.untyped_storage()))
            half = half.t().contiguous()
    assert sum(not each.expired() for each in ends) < 100
