"""What must hold of a round of calls on a GPU before anything is said for the candidate. Raises CandidateFailedError."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.tolerance import compare
from kernels_eval.cpu.output_checks import check_form, check_structure, label_of
from kernels_eval.gpu.attribution import Coverage, suspicious_names
from kernels_eval.gpu.session import Round, SharedCalls
from kernels_eval.reference.reference import Expected
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm
from kernels_eval.verdict import Status

_UNJOINED_S = 15e-6
"""Waiting for a device that is idle takes under 10 µs; what ends this soon after the default stream's work gains nothing."""


@dataclass
class Errors:
    """The largest errors of right answers so far."""

    absolute: float = 0.0
    relative: float = 0.0


def check_round(made: Round, calls: SharedCalls, expected_sets: Iterable[Expected], errors: Errors) -> None:
    """Check every call's outputs, what became of the inputs, the guards and the threads.

    `expected_sets` may be made as they are asked for: one at a time is held here.
    """
    if len(made.answer.calls) != calls.count:
        raise CandidateFailedError(Status.REJECTED, "malformed_answer", "the process answered for other calls")
    allowed: set[int] = set()
    for call, expected in enumerate(expected_sets):
        _check_call(made, calls, call, expected, errors)
        allowed |= expected.changed_inputs
    changed = calls.changed_inputs() - allowed
    if changed:
        raise CandidateFailedError(
            Status.REJECTED, "changed_input", f"changed input {min(changed)}, which the reference leaves alone"
        )
    if calls.has_broken_guards():
        raise CandidateFailedError(Status.RUNTIME_ERROR, "out_of_bounds", "wrote outside its tensors")
    if made.answer.threads > 1:
        raise CandidateFailedError(
            Status.REJECTED, "background_thread", f"{made.answer.threads - 1} threads went on after the call returned"
        )
    if made.answer.unjoined_s > _UNJOINED_S:
        message = f"work on another stream went on for {1e6 * made.answer.unjoined_s:.0f} µs after the current stream was done: it has to wait for it"
        raise CandidateFailedError(Status.REJECTED, "unjoined_stream", message)


def _check_call(made: Round, calls: SharedCalls, call: int, expected: Expected, errors: Errors) -> None:
    outputs = made.answer.calls[call].outputs
    check_structure(len(outputs), made.answer.calls[call].structure, expected)
    for index, (form, native, oracle) in enumerate(zip(outputs, expected.native, expected.oracle, strict=True)):
        label = label_of(index, len(outputs))
        check_form(form if form.kind == "tensor" else None, form.type, native, label)
        actual = calls.output(call, index, TensorForm(dtype=form.dtype, shape=form.shape))
        comparison = compare(actual, oracle, native, label)
        if not comparison.agrees:
            raise CandidateFailedError(Status.INCORRECT, "wrong_values", comparison.message)
        if form.expanded:
            raise CandidateFailedError(Status.REJECTED, "expanded_output", f"{label} repeats elements by a stride of 0")
        errors.absolute = max(errors.absolute, comparison.max_abs_error or 0.0)
        errors.relative = max(errors.relative, comparison.max_rel_error or 0.0)


def check_coverage(coverage: Coverage, own_names: Collection[str], config: JudgeConfig) -> None:
    """Refuse a candidate whose own kernels did not do the work."""
    if suspicious_names(own_names):
        name = suspicious_names(own_names)[0]
        raise CandidateFailedError(Status.REJECTED, "disguised_kernel", f"a kernel is called {name}, like a library's")
    if coverage.own_ns == 0:
        raise CandidateFailedError(Status.REJECTED, "no_kernel_launched", "no kernel of the source ran on the device")
    if config.policy == "strict" and coverage.library_names:
        names = ", ".join(name[:80] for name in coverage.library_names[:3])
        raise CandidateFailedError(Status.REJECTED, "library_compute", f"ran kernels that are not its own: {names}")
    if coverage.own_share < config.min_own_time:
        raise CandidateFailedError(
            Status.REJECTED, "library_compute", f"own kernels take {coverage.own_share:.0%} of the device time"
        )


def check_dependence(made: Round, calls: SharedCalls, expected_sets: list[Expected]) -> None:
    """Refuse a candidate whose result is right although its kernels did nothing."""
    for call, expected in enumerate(expected_sets):
        for index, (form, native, oracle) in enumerate(
            zip(made.answer.calls[call].outputs, expected.native, expected.oracle, strict=False)
        ):
            same_form = (
                form.kind == "tensor" and form.shape == tuple(native.shape) and form.dtype == NAMES[native.dtype]
            )
            if not same_form:
                continue
            actual = calls.output(call, index, TensorForm(dtype=form.dtype, shape=form.shape))
            if bool((actual != actual).all()) or not compare(actual, oracle, native, "output").agrees:
                return
    raise CandidateFailedError(
        Status.REJECTED, "decoy_kernel", "the result does not depend on the source's own kernels"
    )
