"""Operators that host code may use: by name under `strict`, all that can be carried out elsewhere under `mixed`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_eval.correctness.allowed_operators import STRICT, is_recordable, refusal

aten = torch.ops.aten
ALLOCATE_VIEW_COPY: list[Any] = [
    aten.empty.memory_format, aten.zeros.default, aten.full_like.default, aten.view.default, aten.transpose.int,
    aten.slice.Tensor, aten.expand.default, aten.clone.default, aten.copy_.default, aten._to_copy.default, aten.cat.default,
    aten.zero_.default, aten.detach.default,
]  # fmt: skip
COMPUTE: list[Any] = [
    aten.mm.default, aten.add.Tensor, aten.mul_.Scalar, aten.sum.dim_IntList, aten._softmax.default, aten.convolution.default,
    aten.gather.default, aten.index_select.default, aten.sort.default, aten.masked_fill.Scalar, aten.where.self,
]  # fmt: skip
UNTRACEABLE: list[Any] = [aten.set_.source_Storage, aten.resize_.default]


def reason(function: Any, strict: bool) -> str | None:
    return refusal(function, function.overloadpacket.__name__, strict)


@pytest.mark.parametrize("function", ALLOCATE_VIEW_COPY, ids=str)
@pytest.mark.parametrize("strict", [True, False])
def test_allocations_views_and_copies_are_allowed(function: Any, strict: bool) -> None:
    assert reason(function, strict) is None


@pytest.mark.parametrize("function", COMPUTE, ids=str)
def test_computing_is_refused_under_strict_alone(function: Any) -> None:
    name = function.overloadpacket.__name__
    assert (
        reason(function, True)
        == f"aten.{name}: the kernels have to compute this; PyTorch may only allocate, view and copy"
    )
    assert reason(function, False) is None
    assert [is_recordable(name, strict) for strict in (True, False)] == [False, True]


@pytest.mark.parametrize("strict", [True, False])
def test_operators_that_exchange_a_storage_are_never_allowed(strict: bool) -> None:
    for function in UNTRACEABLE:
        assert "cannot use this operator" in (reason(function, strict) or "")
        assert not is_recordable(function.overloadpacket.__name__, strict)


def test_operators_outside_of_aten_are_never_allowed() -> None:
    register: Callable[..., Any] = torch.library.custom_op("kernelmill_test::twice", mutates_args=())

    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    register(twice)
    assert "kernelmill_test.twice" in (refusal(torch.ops.kernelmill_test.twice.default, "twice", False) or "")


@pytest.mark.parametrize("name", sorted(STRICT))
def test_what_host_code_may_use_the_judge_carries_out(name: str) -> None:
    packet = getattr(aten, name, None)
    assert is_recordable(name, True)
    assert is_recordable(name, False)
    for overload in packet.overloads() if packet is not None else ():
        assert refusal(getattr(packet, overload), name, True) is None
