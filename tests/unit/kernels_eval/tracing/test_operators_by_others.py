"""Operators recorded as others, since they consist of them or read values: on values they give what PyTorch gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import Operate, Part, View
from kernels_eval.tracing.tracer import Tracer

GIVEN = torch.tensor([[3, 0, 3, 7], [0, 0, 1, 5]])


class Recorded:
    """Host code that is run on a tensor without values, and reads values from a store as it goes."""

    def __init__(self, given: torch.Tensor, strict: bool = False) -> None:
        self.store = TensorStore(strict=strict)
        self.store.give(0, given, given.numel() * given.element_size())
        self.tracer = Tracer(strict=strict, read=self.read)
        self.tracer.start()
        self.given: Any = self.tracer.input(0, tuple(given.shape), given.dtype)
        self.reads = 0

    def read(self, view: dict[str, Any]) -> Any:
        self.reads += 1
        return self.value(view).item()

    def value(self, view: dict[str, Any]) -> torch.Tensor:
        for command in Part.model_validate({"kernels": [], "commands": self.tracer.take()[0]}).commands:
            if isinstance(command, Operate):
                self.store.operate(command)
        return self.store.tensor(View(**view))

    def results(self, call: Callable[[Any], Any]) -> list[torch.Tensor]:
        with self.tracer:
            found = call(self.given)
        found = list(found) if isinstance(found, tuple) else [found]
        return [self.value(self.tracer.view_of(tensor)) for tensor in found]


CALLS: dict[str, Callable[[Any], Any]] = {
    "nonzero": torch.nonzero,
    "nonzero_as_tuple": lambda x: torch.nonzero(x > 1, as_tuple=True),
    "where": lambda x: torch.where(x == 0),
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "mask_of_all_dimensions": lambda x: x[x != 3],
    "mask_of_the_first": lambda x: x[x[:, 2] == 3],
    "mask_and_index": lambda x: x[:, x[0] == 3],
    "bincount": lambda x: torch.bincount(x.flatten()),
    "bincount_of_at_least": lambda x: torch.bincount(x.flatten(), minlength=16),
    "bincount_with_weights": lambda x: torch.bincount(x.flatten(), x.flatten().float() + 0.5),
    "bincount_of_nothing": lambda x: torch.bincount(x.flatten()[:0], minlength=3),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x[0], dim=1),
    "repeat_interleave_of_a_known_size": lambda x: torch.repeat_interleave(x, x[0], dim=1, output_size=13),
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique_of_nothing": lambda x: torch.unique(x[:0], return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_results_are_those_of_pytorch(call: Callable[[Any], Any]) -> None:
    expected = call(GIVEN)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = Recorded(GIVEN).results(call)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.tolist() == theirs.tolist()


def test_the_length_is_a_value_that_host_code_reads() -> None:
    recorded = Recorded(GIVEN)
    recorded.results(lambda x: x[x > 1])
    assert recorded.reads == 1
    recorded.results(lambda x: x[torch.ones_like(x[:, 0])])
    assert recorded.reads == 1


@pytest.mark.parametrize("call", [CALLS["nonzero"], CALLS["unique"], CALLS["mask_of_the_first"]])
def test_strict_refuses_them(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ForbiddenOperatorError, match="the kernels have to compute this"):
        Recorded(GIVEN, strict=True).results(call)


def test_others_whose_shape_depends_on_values_are_named() -> None:
    with pytest.raises(ForbiddenOperatorError, match="shape depends on values"):
        Recorded(GIVEN).results(lambda x: torch.unique(x, dim=0))


COPIES: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x.t().contiguous(),
    "reshape": lambda x: x.t().reshape(-1),
    "to": lambda x: x.to(torch.float32),
    "type": lambda x: x.half(),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)),
    "tile": lambda x: x.tile(2),
    "item": lambda x: x.new_full((2,), int(x[0, 3])),
    "truth": lambda x: x.t().clone() if x[0, 0] else x,
}


def _in_inference_mode(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return torch.inference_mode()(call)


def _in_a_custom_operator(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    name = f"kernelmill_test::composite_{len(_OPERATORS)}"

    def compute(x: torch.Tensor) -> torch.Tensor:
        return call(x)

    _OPERATORS.append(torch.library.custom_op(name, compute, mutates_args=()))
    return _OPERATORS[-1]


_OPERATORS: list[Any] = []


@pytest.mark.parametrize("wrapped", [_in_inference_mode, _in_a_custom_operator])
@pytest.mark.parametrize("call", COPIES.values(), ids=list(COPIES))
def test_copies_are_recorded_in_inference_mode_and_in_custom_operators(
    call: Callable[[Any], Any], wrapped: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
) -> None:
    expected = call(GIVEN)
    (found,) = Recorded(GIVEN, strict=True).results(wrapped(call))
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    assert found.tolist() == expected.tolist()


def test_parts_that_compute_are_refused() -> None:
    for wrapped in (_in_inference_mode, _in_a_custom_operator):
        with pytest.raises(ForbiddenOperatorError, match=r"aten\.mm: the kernels have to compute this"):
            Recorded(GIVEN, strict=True).results(wrapped(lambda x: torch.nn.functional.linear(x, x)))


def test_parts_of_host_code_may_be_named_for_a_profiler() -> None:
    def named(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("rows"):
            return x.clone()

    (found,) = Recorded(GIVEN, strict=True).results(named)
    assert torch.equal(found, GIVEN)
