"""Checks of a round of calls on a GPU: outputs, inputs, guards, threads, streams, attribution of the device time.

Each raises CandidateFailedError; `check_reference_time` raises UnreliableTimingError.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.correctness.tolerance import compare
from kernels_eval.cpu.output_checks import check_form, check_structure, label_of
from kernels_eval.gpu.profiling import Attribution, suspicious_names
from kernels_eval.gpu.session import Round
from kernels_eval.gpu.shared_memory import SharedCalls
from kernels_eval.gpu.timing import UnreliableTimingError
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm
from kernels_eval.verdict import Status

_UNJOINED_S = 15e-6
"""Waiting for an idle device takes under 10 µs; work that ends this soon after the default stream's gains nothing."""
_PROFILED_SHARE = 0.6
"""Share of the device time of kernels in a profiled call that a timed call takes at least."""
_SLOWED = 1.5


@dataclass
class LargestErrors:
    """Largest errors of right answers so far."""

    absolute: float = 0.0
    relative: float = 0.0


def check_round(made: Round, calls: SharedCalls, expected_sets: Iterable[Expected], largest: LargestErrors) -> None:
    """Check every call's outputs, then inputs, guards, threads and streams. Holds one of `expected_sets` at a time."""
    if len(made.answer.calls) != calls.count:
        raise CandidateFailedError(Status.REJECTED, "malformed_answer", "the process answered for other calls")
    allowed: set[int] = set()
    for call, expected in enumerate(expected_sets):
        _check_call(made, calls, call, expected, largest)
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
        spent = f"{1e6 * made.answer.unjoined_s:.0f} µs"
        message = f"work on another stream went on for {spent} after the current stream was done: it has to wait for it"
        raise CandidateFailedError(Status.REJECTED, "unjoined_stream", message)


def _check_call(made: Round, calls: SharedCalls, call: int, expected: Expected, largest: LargestErrors) -> None:
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
        largest.absolute = max(largest.absolute, comparison.max_abs_error or 0.0)
        largest.relative = max(largest.relative, comparison.max_rel_error or 0.0)


def check_attribution(attribution: Attribution, own_names: Collection[str], config: JudgeConfig) -> None:
    """Refuse a candidate if its own kernels did not do the work."""
    if suspicious_names(own_names):
        name = suspicious_names(own_names)[0]
        raise CandidateFailedError(Status.REJECTED, "disguised_kernel", f"a kernel is called {name}, like a library's")
    if attribution.own_ns == 0:
        raise CandidateFailedError(Status.REJECTED, "no_kernel_launched", "no kernel of the source ran on the device")
    if config.policy == "strict" and attribution.library_names:
        names = ", ".join(name[:80] for name in attribution.library_names[:3])
        raise CandidateFailedError(Status.REJECTED, "library_compute", f"ran kernels that are not its own: {names}")
    if attribution.own_share < config.min_own_time:
        raise CandidateFailedError(
            Status.REJECTED, "library_compute", f"own kernels take {attribution.own_share:.0%} of the device time"
        )


def check_profiled_time(candidate_s: float, kernels_s: float) -> None:
    """Refuse a candidate whose timed calls take less than its kernels ran for in a profiled call."""
    if candidate_s < _PROFILED_SHARE * kernels_s:
        message = (
            f"timed calls take {1e6 * candidate_s:.2f} µs, the profiled one ran kernels for {1e6 * kernels_s:.2f} µs"
        )
        raise CandidateFailedError(Status.REJECTED, "unlike_profile", message)


def check_reference_time(reference_s: float, best_s: float | None) -> None:
    """Raise UnreliableTimingError if the reference is slow beside this candidate. `best_s`: its shortest time."""
    if best_s is not None and reference_s > _SLOWED * best_s:
        message = f"the reference took {1e3 * reference_s:.4f} ms beside this kernel, {1e3 * best_s:.4f} ms before"
        raise UnreliableTimingError("slowed_reference", message)


def check_floor(candidate_s: float, floor_s: float) -> None:
    """Refuse a candidate that takes less time than the device needs (kernels_eval.gpu.timing_statistics.floor_s)."""
    if candidate_s < floor_s:
        message = f"{1e6 * candidate_s:.2f} µs is less than the {1e6 * floor_s:.2f} µs that the device needs at best"
        raise CandidateFailedError(Status.REJECTED, "below_roofline", message)


def check_dependence(made: Round, calls: SharedCalls, expected_sets: list[Expected]) -> None:
    """Refuse a candidate if its result is right although its kernels were suppressed."""
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
