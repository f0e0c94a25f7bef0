"""Weights that the judge sets a second time, after host code has given parameters other memory or other values."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernels_eval.correctness.made_of_weights import MadeOfWeights
from kernels_eval.gpu.candidate.held_weights import HeldWeights
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard
from kernels_eval.gpu.device import cuda_driver

FIRST, SECOND = torch.arange(24.0).reshape(4, 6), 100 + torch.arange(24.0).reshape(4, 6)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))
        self.turned = self.weight.detach().t().contiguous()
        self.doubled = 2 * self.weight.detach()


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


def set_twice(call: Callable[[Model], object]) -> Model:
    """Return a model whose weight the judge has set before a call and after it."""
    with MadeOfWeights() as made:
        model = Model()
    held, guard = HeldWeights(model, made), OperatorGuard(enforce=True)
    for values in (FIRST, SECOND):
        targets = held.targets({"weight": True})
        with torch.no_grad():
            targets["weight"].copy_(values)
            held.remake()
            guard.copies.renew()
            held.forget_computed({"weight": True})
        guard.copies.watch([*targets.values(), *held.made_of_weights])
        if values is FIRST:
            guard.start(poisons=True)
            with torch.no_grad(), guard:
                call(model)
    return model


def test_what_the_constructor_made_of_a_weight_is_made_again() -> None:
    model = set_twice(lambda _: None)
    assert torch.equal(model.weight, SECOND)
    assert torch.equal(model.turned, SECOND.t())
    assert model.doubled.isnan().all()


def test_a_parameter_that_was_replaced_by_a_copy_follows() -> None:
    def call(model: Model) -> None:
        model.weight.data = model.weight.data.t().contiguous()

    assert torch.equal(set_twice(call).weight, SECOND.t())


def test_a_parameter_that_was_given_up_for_a_copy_is_no_failure() -> None:
    def call(model: Model) -> None:
        model.turned = model.weight.half()
        model.weight.data = torch.empty(0)

    model = set_twice(call)
    assert torch.equal(model.turned, SECOND.half())
    assert not model.weight.numel()


def test_a_parameter_that_got_other_memory_is_set_there() -> None:
    """`flatten_parameters` of a recurrent layer copies weights where no operator is seen."""
    flat = FIRST.clone()
    model = set_twice(lambda model: setattr(model.weight, "data", flat))
    assert model.weight.data_ptr() == flat.data_ptr()
    assert torch.equal(model.weight, SECOND)


def test_what_a_call_puts_in_the_place_of_something_computed_is_kept() -> None:
    model = set_twice(lambda model: setattr(model, "doubled", model.weight.t().contiguous()))
    assert torch.equal(model.doubled, SECOND.t())
