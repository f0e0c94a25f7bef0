"""CPU worker: checks the traced program of a forward call before it runs, then the computed values."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from kernels_eval.correctness.equal_elements import compare_output
from kernels_eval.correctness.outputs import Expected
from kernels_eval.correctness.tolerance import compare
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.interpreter.memory_accesses import Origin
from kernels_eval.sandbox.child import CandidateFailedError, out_of_turn
from kernels_eval.sandbox.messages import ExecutedAnswer, OutputForm
from kernels_eval.sandbox.tensor_bytes import DTYPES, NAMES, TensorForm, tensor_from
from kernels_eval.trace.schema import FIRST_OWN, TraceAnswer, View
from kernels_eval.verdict import Status

_MIN_KERNEL_SHARE = 0.3
_MOST_SPANNED = 1 << 10
"""Bytes that two outputs in one storage span for each of their elements, up to which a flag is kept for each byte."""
_CERTAIN_SHARE, _CERTAIN_COUNT = 0.1, 16
"""Share and number of wrong elements that show that a kernel is wrong whatever its inputs are."""


def check_trace(trace: TraceAnswer, expected: Expected) -> None:
    """Raise CandidateFailedError if the program cannot be right, whatever its kernels compute. Call before it runs."""
    launches = trace.launches
    if not launches:
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.NO_KERNEL_LAUNCHED, "forward launched no kernel")
    empty = next((launch for launch in launches if 0 in launch.grid), None)
    if empty is not None:
        raise CandidateFailedError(
            Status.RUNTIME_ERROR,
            ErrorCategory.EMPTY_GRID,
            f"a kernel was launched over an empty grid (line {empty.line})",
        )
    check_structure(len(trace.outputs), trace.structure, expected)
    for index, (output, native) in enumerate(zip(trace.outputs, expected.native, strict=True)):
        label = label_of(index, len(trace.outputs))
        view = check_form(output.view, output.type, native, label)
        _check_storage(view, index, label, expected)
    if not expected.shared:
        _check_overlap([output.view for output in trace.outputs if output.view is not None])


def check_structure(count: int, structure: str, expected: Expected) -> None:
    """Raise CandidateFailedError unless a call returns as many results as the reference, in the same collections."""
    if count != len(expected.native):
        message = f"returned {count} outputs, expected {len(expected.native)}"
        raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_OUTPUT_COUNT, message)
    if structure != expected.structure:
        message = f"returned {structure[:300]}, expected {expected.structure[:300]}"
        raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_TYPE, message)


_Form = TypeVar("_Form", View, OutputForm)


def check_form(form: _Form | None, type_name: str, native: torch.Tensor, label: str) -> _Form:
    """Return the form of an output. Raises CandidateFailedError unless it has the reference's shape and dtype.

    `form` is None for an object of type `type_name` that is not a tensor.
    """
    if form is None:
        raise CandidateFailedError(
            Status.INCORRECT, ErrorCategory.WRONG_TYPE, f"{label} is a {type_name}, expected a tensor"
        )
    if form.shape != tuple(native.shape):
        message = f"{label} has shape {list(form.shape)}, expected {list(native.shape)}"
        raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_SHAPE, message)
    if form.dtype != NAMES.get(native.dtype):
        message = f"{label} is {form.dtype}, expected {NAMES.get(native.dtype)}"
        raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_DTYPE, message)
    return form


def _check_storage(view: View, index: int, label: str, expected: Expected) -> None:
    """Raise CandidateFailedError if an output shares memory in a way that the reference's does not."""
    if view.is_expanded and not expected.expanded[index]:
        raise CandidateFailedError(
            Status.REJECTED, ErrorCategory.EXPANDED_OUTPUT, f"{label} shows elements of its memory more than once"
        )
    if view.storage < FIRST_OWN and view.numel and not expected.aliased[index]:
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.ALIASED_OUTPUT,
            f"{label} is an input or a weight, expected memory of its own",
        )


def _check_overlap(views: list[View]) -> None:
    """Raise CandidateFailedError if two outputs share an element. (Parts of one allocation are fine.)"""
    for second, view in enumerate(views):
        for first, other in enumerate(views[:second]):
            if other.storage == view.storage and _overlap(other, view):
                raise CandidateFailedError(
                    Status.REJECTED,
                    ErrorCategory.ALIASED_OUTPUT,
                    f"outputs {first} and {second} lie in the same memory",
                )


def _overlap(first: View, second: View) -> bool:
    """Return whether two views of a storage share an element. They are not run yet, and may name any places."""
    ends = [_ends(view) for view in (first, second) if view.numel]
    if len(ends) < 2 or max(low for low, _ in ends) >= min(high for _, high in ends):
        return False
    start, end = min(low for low, _ in ends), max(high for _, high in ends)
    if end - start > _MOST_SPANNED * (first.numel + second.numel):
        return bool(np.isin(_elements(first), _elements(second)).any())
    touched = np.zeros(end - start, dtype=np.bool_)
    _places(touched, first, start)[...] = True
    return bool(_places(touched, second, start).any())


def _elements(view: View) -> Any:
    """Return the byte offsets of a view's elements in its storage."""
    places = np.array([view.offset])
    for size, stride in zip(view.shape, view.strides, strict=True):
        places = (places[:, None] + stride * np.arange(size)).reshape(-1)
    return places * DTYPES[view.dtype].itemsize


def _ends(view: View) -> tuple[int, int]:
    """Return the bytes of a storage between which a view's elements start."""
    itemsize = DTYPES[view.dtype].itemsize
    return view.offset * itemsize, (view.reach - 1) * itemsize + 1


def _places(touched: Any, view: View, start: int) -> Any:
    """Return the bytes at which a view's elements start, of an array of those from `start` on."""
    itemsize = DTYPES[view.dtype].itemsize
    strides = [stride * itemsize for stride in view.strides]
    return np.lib.stride_tricks.as_strided(touched[view.offset * itemsize - start :], view.shape, strides)


def check_values(
    trace: TraceAnswer,
    answer: ExecutedAnswer,
    content: bytearray,
    expected: Expected,
    inputs: Sequence[Any],
    changed: Mapping[int, torch.Tensor],
    strict: bool,
) -> tuple[float, float]:
    """Return the largest absolute and relative error. Raises CandidateFailedError if the answer is wrong.

    `inputs`: those that the call was given. `changed`: those that it has changed, by index, with the values that they
    have now.
    """
    worst_absolute = worst_relative = 0.0
    offset = 0
    if len(answer.outputs) != len(trace.outputs):
        raise out_of_turn("the interpreter process answered out of turn")
    for index, (output, facts) in enumerate(zip(trace.outputs, answer.outputs, strict=True)):
        view, native = output.view, expected.native[index]
        assert view is not None
        label = label_of(index, len(trace.outputs))
        form = TensorForm(dtype=view.dtype, shape=view.shape)
        if offset + form.nbytes > len(content):
            raise out_of_turn("fewer bytes than the outputs have")
        actual = tensor_from(content, form, offset)
        offset += form.nbytes
        comparison = compare_output(actual, expected, index, inputs, label)
        if not comparison.agrees:
            wrong = round(comparison.wrong_share * actual.numel())
            is_certain = comparison.wrong_share >= _CERTAIN_SHARE and wrong >= _CERTAIN_COUNT
            raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_VALUES, comparison.message, is_certain)
        kept = facts.origins[Origin.GIVEN] if view.storage in expected.inputs_after else 0
        _check_origins(facts.origins, kept, native, label, strict)
        worst_absolute = max(worst_absolute, comparison.max_abs_error or 0.0)
        worst_relative = max(worst_relative, comparison.max_rel_error or 0.0)
    _check_changed(changed, expected)
    return worst_absolute, worst_relative


def _check_changed(changed: Mapping[int, torch.Tensor], expected: Expected) -> None:
    """Raise CandidateFailedError unless each changed input is one that the reference changes, and to its values.

    One that only the reference changes may stay as it is: many do so by the way (`nn.ReLU(inplace=True)`).
    """
    for index, now in sorted(changed.items()):
        after = expected.inputs_after.get(index)
        if after is None:
            message = f"changed input {index}, which the reference leaves alone"
            raise CandidateFailedError(Status.REJECTED, ErrorCategory.CHANGED_INPUT, message)
        comparison = compare(now, after, after, f"input {index}")
        if not comparison.agrees:
            message = f"changed an input otherwise than the reference: {comparison.message}"
            raise CandidateFailedError(Status.REJECTED, ErrorCategory.CHANGED_INPUT, message)


def check_dependence(trace: TraceAnswer, content: bytearray, expected: Expected, inputs: Sequence[Any]) -> None:
    """Raise CandidateFailedError if results stay right when all values that kernels write are replaced.

    `inputs`: those that the call was given. Used if the allowed operators are `mixed`.
    """
    wrong = total = offset = 0
    for index, output in enumerate(trace.outputs):
        assert output.view is not None
        form = TensorForm(dtype=output.view.dtype, shape=output.view.shape)
        actual = tensor_from(content, form, offset)
        offset += form.nbytes
        wrong += round(compare_output(actual, expected, index, inputs, "").wrong_share * actual.numel())
        total += actual.numel()
    if wrong < _MIN_KERNEL_SHARE * total:
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.DECOY_KERNEL,
            f"only {wrong / total:.0%} of the result depends on what the kernels compute",
        )


def _check_origins(origins: tuple[int, ...], kept: int, native: torch.Tensor, label: str, strict: bool) -> None:
    """Raise CandidateFailedError under `strict` if kernels wrote too few elements, not counting constant fills.

    `kept`: elements of a returned input that nobody wrote, where the reference changes that input as well: one element
    that kernels wrote is enough then.
    """
    computed = sum(origins) - origins[Origin.FILL] - kept
    if strict and origins[Origin.KERNEL] < max(_MIN_KERNEL_SHARE * computed, min(kept, 1)):
        share = origins[Origin.KERNEL] / native.numel()
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.OUTPUT_NOT_FROM_KERNEL,
            f"kernels stored {share:.0%} of {label}'s elements; PyTorch wrote others, or they are an input's",
        )


def label_of(index: int, count: int) -> str:
    """Return the name of an output in messages."""
    return f"output {index}" if count > 1 else "output"
