"""Operators of PyTorch inside a call on a GPU; the guard itself does not depend on the device."""

import pytest
import torch

from kernels_eval.correctness.allowed_operators import MAX_HOST_READS, ForbiddenOperatorError
from kernels_eval.gpu.operator_guard import OperatorGuard

X = torch.arange(6.0).reshape(2, 3)


def test_what_computes_is_refused_and_remembered() -> None:
    guard = OperatorGuard(enforce=True)
    with guard, pytest.raises(ForbiddenOperatorError, match=r"aten\.mm"):
        torch.mm(X, X.t())
    assert guard.violations == ["aten.mm"]


def test_allocating_viewing_and_copying_are_allowed() -> None:
    guard = OperatorGuard(enforce=True)
    with guard:
        made = torch.empty(3, 2)
        made.copy_(X.t())
    assert guard.violations == []
    assert torch.equal(made, X.t())


def test_fresh_memory_holds_no_usable_values() -> None:
    guard = OperatorGuard(enforce=True)
    with guard:
        floats, integers = torch.empty(4), torch.empty(4, dtype=torch.int32)
    assert bool(floats.isnan().all())
    assert integers.tolist() == [85] * 4


def test_timed_calls_leave_fresh_memory_alone() -> None:
    """Filling costs device time: the guard itself must not call the fill."""
    guard = OperatorGuard(enforce=True)
    filled: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels_eval.gpu.operator_guard._fill", lambda tensor, value: filled.append(tensor))
        guard.start(poisons=False)
        with guard:
            torch.empty(4)
        assert not filled
        guard.start(poisons=True)
        with guard:
            torch.empty(4)
        assert len(filled) == 1


def test_host_reads_are_counted_for_each_call() -> None:
    guard = OperatorGuard(enforce=True)
    one = torch.ones(())
    for _ in range(2):
        guard.start(poisons=False)
        with guard:
            for _ in range(MAX_HOST_READS):
                one.item()
    with guard, pytest.raises(ForbiddenOperatorError):
        one.item()


def test_not_enforced_everything_passes() -> None:
    with OperatorGuard(enforce=False):
        assert torch.equal(torch.mm(X, X.t()), X @ X.t())
