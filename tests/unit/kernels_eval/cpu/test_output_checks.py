"""Checks of outputs, each by itself: what refuses an output names it, and what is right passes."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.outputs import ONE, Expected
from kernels_eval.cpu.output_checks import check_dependence, check_form, check_structure, check_trace, check_values
from kernels_eval.interpreter.memory_accesses import Origin
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import ExecutedAnswer
from kernels_eval.sandbox.tensor_bytes import bytes_of
from kernels_eval.trace.schema import FIRST_OWN, TraceAnswer

TWO = "a tuple or list of (a tensor, a tensor)"
OWN = FIRST_OWN + 1


def view(storage: int = OWN, shape: tuple[int, ...] = (2, 3), strides: tuple[int, ...] = (3, 1), **named: Any) -> Any:
    return {"storage": storage, "dtype": "float32", "shape": shape, "strides": strides, **named}


def trace(*views: Any, grid: tuple[int, int, int] = (1, 1, 1), launches: int = 1) -> TraceAnswer:
    commands = [{"kind": "launch", "kernel": 0, "arguments": {}, "grid": grid, "line": 7}] * launches
    outputs = [{"view": each} if isinstance(each, dict) else {"type": each} for each in views]
    structure = ONE if len(views) == 1 else TWO
    return TraceAnswer.model_validate(
        {"kind": "trace", "kernels": [], "commands": commands, "structure": structure, "outputs": outputs}
    )


def expected(count: int = 1, **named: Any) -> Expected:
    native = [torch.arange(6.0).reshape(2, 3) for _ in range(count)]
    given: dict[str, Any] = {"expanded": (False,) * count, "aliased": (False,) * count} | named
    structure = ONE if count == 1 else TWO
    return Expected(native, [one.double() for one in native], frozenset(), structure, **given)


def category(run: Any) -> str:
    with pytest.raises(CandidateFailedError) as failed:
        run()
    return failed.value.category


def test_a_program_that_may_be_right_passes() -> None:
    check_trace(trace(view()), expected())
    check_trace(trace(view(), view(offset=6)), expected(2))  # parts of one allocation
    check_trace(trace(view(storage=0)), expected(aliased=(True,)))
    check_trace(trace(view(strides=(0, 1))), expected(expanded=(True,)))
    check_trace(trace(view(), view()), expected(2, shared=True))


@pytest.mark.parametrize(
    ("answer", "count", "refused"),
    [
        (trace(view(), launches=0), 1, "no_kernel_launched"),
        (trace(view(), grid=(1, 0, 1)), 1, "empty_grid"),
        (trace(view(), view()), 1, "wrong_output_count"),
        (trace("int"), 1, "wrong_type"),
        (trace(view(shape=(3, 2), strides=(2, 1))), 1, "wrong_shape"),
        (trace(view() | {"dtype": "float16"}), 1, "wrong_dtype"),
        (trace(view(strides=(0, 1))), 1, "expanded_output"),
        (trace(view(storage=0)), 1, "aliased_output"),
        (trace(view(), view(offset=5)), 2, "aliased_output"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_right_is_refused_before_it_runs(answer: TraceAnswer, count: int, refused: str) -> None:
    assert category(lambda: check_trace(answer, expected(count))) == refused


def test_results_are_in_the_references_collections() -> None:
    check_structure(1, ONE, expected())
    assert category(lambda: check_structure(1, "a dictionary of {'a': a tensor}", expected())) == "wrong_type"


def test_a_message_names_the_output_and_both_types() -> None:
    with pytest.raises(CandidateFailedError, match="output 1 is a list, expected a tensor"):
        check_form(None, "list", torch.zeros(1), "output 1")


def executed(values: torch.Tensor, origin: Origin = Origin.KERNEL) -> tuple[ExecutedAnswer, bytearray]:
    origins = [0] * len(Origin)
    origins[origin] = values.numel()
    return ExecutedAnswer.model_validate({"kind": "executed", "outputs": [{"origins": origins}]}), bytearray(
        bytes_of(values)
    )


RIGHT = torch.arange(6.0).reshape(2, 3)


def test_errors_of_right_values_are_returned() -> None:
    answer, content = executed(RIGHT)
    assert check_values(trace(view()), answer, content, expected(), [], {}, strict=True) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "origin", "changed", "refused"),
    [
        (RIGHT + 1, Origin.KERNEL, {}, "wrong_values"),
        (RIGHT, Origin.LIBRARY, {}, "output_not_from_kernel"),
        (RIGHT, Origin.KERNEL, {1: RIGHT}, "changed_input"),
    ],
)
def test_computed_values_are_checked(
    values: torch.Tensor, origin: Origin, changed: dict[int, torch.Tensor], refused: str
) -> None:
    answer, content = executed(values, origin)
    found = category(lambda: check_values(trace(view()), answer, content, expected(), [], changed, strict=True))
    assert found == refused


@pytest.mark.parametrize(
    ("size", "wrong", "is_certain"), [(100, 16, True), (100, 15, False), (320, 16, False), (1, 1, False)]
)
def test_many_wrong_elements_are_no_chance(size: int, wrong: int, is_certain: bool) -> None:
    right = torch.ones(size)
    computed = torch.where(torch.arange(size) < wrong, 2.0, right)
    answer, content = executed(computed)
    wanted = Expected([right], [right.double()], frozenset(), ONE, (False,), (False,))
    with pytest.raises(CandidateFailedError) as caught:
        check_values(trace(view(shape=(size,), strides=(1,))), answer, content, wanted, [], {}, strict=True)
    assert caught.value.is_certain is is_certain


def test_who_wrote_does_not_matter_where_libraries_are_allowed() -> None:
    answer, content = executed(RIGHT, Origin.LIBRARY)
    check_values(trace(view()), answer, content, expected(), [], {}, strict=False)


def test_an_answer_that_is_too_short_is_none() -> None:
    answer, content = executed(RIGHT)
    assert category(lambda: check_values(trace(view()), answer, content[:-1], expected(), [], {}, True)) == (
        "malformed_answer"
    )


def test_results_have_to_depend_on_the_kernels() -> None:
    _, content = executed(RIGHT)
    assert category(lambda: check_dependence(trace(view()), content, expected(), [])) == "decoy_kernel"
    _, content = executed(RIGHT + 1)
    check_dependence(trace(view()), content, expected(), [])


def test_places_of_equal_elements_are_right_and_depend_on_no_kernel() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 3.0, 0.0]])
    native, turned = x.topk(2).indices, torch.tensor([[1, 2], [2, 0]])
    turned[0] = native[0].flip(0)
    form = view(dtype="int64", shape=(2, 2), strides=(2, 1))
    wanted = replace(expected(), native=[native], oracle=[native], call_again=lambda given: given[0].topk(2))
    answer, content = executed(turned)
    assert check_values(trace(form), answer, content, wanted, [x], {}, strict=True) == (0.0, 0.0)
    assert category(lambda: check_dependence(trace(form), content, wanted, [x])) == "decoy_kernel"
    answer, content = executed(torch.zeros_like(turned))
    assert category(lambda: check_values(trace(form), answer, content, wanted, [x], {}, True)) == "wrong_values"
    check_dependence(trace(form), content, wanted, [x])


def test_an_input_may_be_changed_to_what_the_reference_makes_of_it() -> None:
    answer, content = executed(RIGHT)
    wanted = expected(inputs_after={0: 2 * RIGHT, 1: RIGHT})
    for changed in ({}, {0: 2 * RIGHT}, {0: 2 * RIGHT * (1 + 1e-6), 1: RIGHT}):
        check_values(trace(view()), answer, content, wanted, [], changed, strict=True)


@pytest.mark.parametrize("changed", [{0: 3 * RIGHT}, {0: 2 * RIGHT, 1: 0 * RIGHT}, {2: RIGHT}])
def test_an_input_may_not_be_changed_otherwise(changed: dict[int, torch.Tensor]) -> None:
    answer, content = executed(RIGHT)
    wanted = expected(inputs_after={0: 2 * RIGHT, 1: RIGHT})
    assert category(lambda: check_values(trace(view()), answer, content, wanted, [], changed, True)) == "changed_input"


def _seen(first: Any, second: Any) -> bool:
    """Return whether two outputs are refused as overlapping ones."""
    try:
        check_trace(trace(first, second), expected(2))
    except CandidateFailedError as failed:
        return failed.category == "aliased_output"
    return False


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=2))
def test_outputs_overlap_where_one_storage_has_an_element_of_both(places: list[tuple[int, int, int]]) -> None:
    """Compare with sets of the elements; far apart ones too, for which no flag of each byte is kept."""
    for factor in (1, 5000):
        views = [view(strides=(row * factor, 1 * factor), offset=offset * factor) for offset, row, _ in places]
        elements = [{offset + row * i + j for i in range(2) for j in range(3)} for offset, row, _ in places]
        if all(len(each) == 6 and row >= 3 for each, (_, row, _) in zip(elements, places, strict=True)):
            assert _seen(*views) == bool(elements[0] & elements[1])


def test_large_outputs_in_one_storage_are_compared_at_once() -> None:
    size = 1 << 24
    made = [view(shape=(size,), strides=(2,), offset=offset) for offset in (0, 1, 2)]
    wanted = Expected([torch.empty(size, device="meta")] * 2, [], frozenset(), TWO, (False,) * 2, (False,) * 2)
    began = time.process_time()
    check_trace(trace(made[0], made[1]), wanted)
    with pytest.raises(CandidateFailedError, match="the same memory"):
        check_trace(trace(made[0], made[2]), wanted)
    assert time.process_time() - began < 3


def test_places_that_no_memory_has_take_none() -> None:
    far = view(strides=(1 << 39, 1 << 37))
    assert not _seen(view(), far | {"offset": 7})
    assert _seen(view(), far)
