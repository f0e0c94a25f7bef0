"""Arithmetic on tensors of the host beside a GPU: fake tensors stand for those of the device."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.correctness.composed_operators import remember_registrations
from kernels_eval.gpu.candidate import host_tensors
from kernels_eval.gpu.candidate.host_tensors import HostTensors
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard


@pytest.fixture(autouse=True)
def _no_values(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    passes = OperatorGuard._passes
    monkeypatch.setattr(  # fake tensors ask for their device by an operator
        OperatorGuard, "_passes", lambda self, func, *given: func.namespace == "prim" or passes(self, func, *given)
    )
    with FakeTensorMode():
        yield


def on_device() -> torch.Tensor:
    return torch.empty(4, 4, device="cuda")


ALLOWED: dict[str, Callable[[], Any]] = {
    "a scale": lambda: torch.tensor([2.0, 3.0]) / 7,
    "a product of sizes": lambda: torch.tensor([4, 4]).prod(),
    "a check": lambda: (torch.tensor(0.3) >= 0) & (torch.tensor(0.3) <= 1),
    "a table": lambda: torch.ones(4, 4).cumsum(0) @ torch.ones(4, 4),
}
REFUSED: dict[str, Callable[[], Any]] = {
    "a product on the device": lambda: on_device() @ on_device(),
    "a product of copies on the host": lambda: on_device().cpu() @ on_device().cpu(),
    "of a view of a copy": lambda: on_device().cpu()[:2].t() @ torch.ones(2, 2),
    "of a copy into memory of the host": lambda: torch.empty(4, 4).copy_(on_device()) @ torch.ones(4, 4),
    "of a copy of a copy": lambda: on_device().cpu().clone() * 2,
    "of a part of a copy": lambda: torch.cat([on_device().cpu(), torch.ones(1, 4)]).sum(),
    "of the host with the device's": lambda: torch.tensor(2.0) * on_device(),
    "random numbers on the device": lambda: torch.rand_like(torch.ones(4), device="cuda"),
}


@pytest.mark.parametrize("work", ALLOWED.values(), ids=ALLOWED)
def test_arithmetic_on_the_host_alone_is_allowed(work: Callable[[], Any]) -> None:
    guard = OperatorGuard(enforce=True)
    guard.start(poisons=False)
    with guard:
        work()
    assert guard.violations == []


@pytest.mark.parametrize("work", REFUSED.values(), ids=REFUSED)
def test_nothing_of_the_device_reaches_it(work: Callable[[], Any]) -> None:
    guard = OperatorGuard(enforce=True)
    guard.start(poisons=False)
    with guard, pytest.raises(ForbiddenOperatorError):
        work()


def test_an_operator_of_the_candidate_s_is_judged_by_its_parts() -> None:
    """Its function may use tensors that are no argument."""
    kept = on_device()

    @torch.library.custom_op("host_tensors::sums", mutates_args=())
    def sums(value: torch.Tensor) -> torch.Tensor:
        return value + kept.sum()

    sums.register_fake(torch.empty_like)
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError, match="sum"):
        sums(torch.ones(()))


def test_arithmetic_on_many_numbers_is_refused_wherever_they_come_from() -> None:
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError):
        torch.ones(65).sum()


@pytest.mark.parametrize("schema", ["aten::clone.mine(Tensor x) -> Tensor", "profiler::mine(Tensor x) -> Tensor"])
def test_no_operator_of_pytorch_s_is_added(schema: str) -> None:
    remember_registrations()
    space, _, rest = schema.partition("::")
    with pytest.raises(RuntimeError, match="PyTorch's"):
        torch.library.Library(space, "FRAGMENT").define(rest)


def test_a_copy_of_the_call_before_counts_as_the_device_s() -> None:
    guard = OperatorGuard(enforce=True)
    with guard:
        kept = on_device().cpu()
    guard.start(poisons=False)
    with guard, pytest.raises(ForbiddenOperatorError):
        kept.sum()


def test_pinned_memory_may_be_written_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    assert not HostTensors().are_alone((torch.ones(4),), {})


def test_a_copy_of_pinned_memory_counts_as_the_device_s(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = torch.ones(4)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor is pinned)
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError):
        pinned.clone().sum()


@pytest.mark.parametrize("name", ["clone", "peek"])
def test_an_operator_of_the_candidate_s_with_the_name_of_an_allowed_one_or_a_view_is_judged_by_its_parts(
    name: str,
) -> None:
    library = torch.library.Library(f"host_{name}", "DEF")
    schema = f"{name}(Tensor(a) x) -> Tensor(a)" if name == "peek" else f"{name}(Tensor x) -> Tensor"
    remember_registrations()
    library.define(schema)
    library.impl(name, lambda x: x @ x, "CompositeExplicitAutograd")
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError, match="mm"):
        getattr(getattr(torch.ops, f"host_{name}"), name)(on_device())


def test_storages_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tensors, "_MOST_KNOWN", 8)
    host = HostTensors()
    kept = on_device().cpu()
    for _ in range(40):
        host.note((on_device(),), {}, on_device().cpu())
    host.note((on_device(),), {}, kept)
    assert len(host._of_device) <= 9
    assert not host.are_alone((kept,), {})
