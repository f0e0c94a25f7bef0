"""GPU worker: checks a round of calls: outputs, inputs, guards, threads, streams, attribution of the device time.

Each raises CandidateFailedError; what rests on one time alone first raises UnreliableTimingError.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.equal_elements import compare_output
from kernels_eval.correctness.outputs import Expected
from kernels_eval.correctness.tolerance import rows_that_agree, surely_agrees
from kernels_eval.cpu.output_checks import check_form, check_structure, label_of
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.candidate.profiling import Attribution, suspicious_names
from kernels_eval.gpu.candidate.session import Round
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.timing.statistics import Estimate
from kernels_eval.gpu.timing.timer import UnreliableTimingError
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm
from kernels_eval.verdict import Status

_UNJOINED_S = 100e-6
"""Waiting for an idle device takes 2 to 40 µs, longer after large kernels and with several streams."""
_COMPARED_BYTES = 256 << 20
_PROFILED_SHARE = 0.85
"""Share of the device time of kernels in a profiled call that a timed call takes at least."""
_OTHER_LAUNCHES = 0.25
"""Relative difference of launches in a call between two profiles, e.g. of a kernel that every few calls launch."""
_MORE_ACTIVITIES, _FEW_ACTIVITIES = 1.5, 4.0
"""Factor and number by which a checked call may copy and fill more than a timed one: how many calls a round has, and
whether one is made call by call, follows from it."""
_ALONE_SHARE = 0.3
_FOLDER_BYTES = 1 << 30
"""Of a candidate's files between two rounds."""
_FOLDER_DEPTH = 32
"""Of its folders; compilers make three."""
_SLOWED = 1.2
"""Factor by which the reference may take longer beside a candidate."""
_NOISE = 0.03
"""Relative difference of two times of the reference that says nothing: clocks of a device vary by as much."""


@dataclass
class LargestErrors:
    """Largest errors of right answers so far."""

    absolute: float = 0.0
    relative: float = 0.0


def check_round(
    made: Round,
    calls: SharedCalls,
    expected_sets: Iterable[Expected],
    largest: LargestErrors,
    with_oracle: Callable[[int, Expected], Expected],
) -> None:
    """Check every call's outputs, then inputs, guards, threads and streams. Holds one of `expected_sets` at a time.

    `with_oracle`: adds the oracle's results for a call; needed where the outputs are not close to the reference's.
    """
    _check_count(made, calls)
    allowed: set[int] = set()
    for call, expected in enumerate(expected_sets):
        _check_forms(made, call, expected)
        if expected.has_oracle or not _surely_agrees(made, calls, call, expected):
            check_call(made, calls, call, with_oracle(call, expected), largest)
        allowed |= expected.changed_inputs
    check_traces(made, calls, allowed)


def check_timed_round(
    made: Round,
    calls: SharedCalls,
    model: Expected,
    results: Callable[[int], list[torch.Tensor]],
    expected: Callable[[int], Expected],
    largest: LargestErrors,
    is_beyond: Callable[[int, Expected], bool],
    least_sizes: Callable[[int], Sequence[float]],
) -> None:
    """Check a round of many calls: against the reference in its own precision, and where that fails as `check_round`.

    `model`: the reference's results on another set, for their forms; `results`: its outputs on a call's inputs, in its
    own precision; `expected`: the same with the oracle; `is_beyond`: whether a call's inputs are more than the problem
    takes, so that its outputs say nothing; `least_sizes`: of a call's outputs: in one of many terms cancel by chance.
    """
    _check_count(made, calls)
    for call in range(calls.count):
        _check_forms(made, call, model)
    for call in calls_that_differ(calls, results):
        right = expected(call)
        if not is_beyond(call, right):
            check_call(made, calls, call, right, largest, least_sizes(call))
    check_traces(made, calls, model.changed_inputs)


def _check_count(made: Round, calls: SharedCalls) -> None:
    if len(made.answer.calls) != calls.count:
        raise CandidateFailedError(
            Status.REJECTED, ErrorCategory.MALFORMED_ANSWER, "the process answered for other calls"
        )


def calls_that_differ(calls: SharedCalls, results: Callable[[int], list[torch.Tensor]]) -> list[int]:
    """Return the calls whose outputs are not close to the reference's in its own precision."""
    at_once = max(1, _COMPARED_BYTES // max(1, sum(form.nbytes for form in calls.output_forms)))
    differ: list[int] = []
    for first in range(0, calls.count, at_once):
        block = range(first, min(first + at_once, calls.count))
        native = [results(call) for call in block]
        agrees = [
            rows_that_agree(
                calls.outputs(index)[first : block.stop],
                _rows([tensors[index] for tensors in native]),
                native[0][index].shape,
            )
            for index in range(len(calls.output_forms))
        ]
        differ += [first + place for place in (~torch.stack(agrees).all(dim=0)).nonzero().flatten().tolist()]
    return differ


def _rows(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return tensors as rows, without copying a single one: it may take gigabytes."""
    return tensors[0].reshape(1, -1) if len(tensors) == 1 else torch.stack([value.reshape(-1) for value in tensors])


def check_traces(made: Round, calls: SharedCalls, allowed: Collection[int]) -> None:
    """Check what calls leave beside their outputs. `allowed`: indices of inputs that the reference changes too."""
    changed = calls.changed_inputs() - set(allowed)
    if changed:
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.CHANGED_INPUT,
            f"changed input {min(changed)}, which the reference leaves alone",
        )
    if calls.has_broken_guards():
        raise CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.OUT_OF_BOUNDS, "wrote outside its tensors")
    if made.answer.threads > 1:
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.BACKGROUND_THREAD,
            f"{made.answer.threads - 1} threads went on after the call returned",
        )
    if calls.has_late_writes():
        message = "outputs were written after the round's end: work that the default stream does not wait for"
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNJOINED_STREAM, message)


def check_streams(attribution: Attribution, unjoined_s: float) -> None:
    """Refuse a candidate whose side streams go on when the default one is done. `unjoined_s`: for so long at most."""
    if attribution.uses_side_streams and unjoined_s > _UNJOINED_S:
        spent = f"{1e6 * unjoined_s:.0f} µs"
        message = f"work on another stream went on for {spent} after the current stream was done: it has to wait for it"
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNJOINED_STREAM, message)


def _surely_agrees(made: Round, calls: SharedCalls, call: int, expected: Expected) -> bool:
    """Return True if `check_call` would pass, by the reference in its own precision alone."""
    outputs = made.answer.calls[call].outputs
    return all(
        not form.expanded
        and surely_agrees(calls.output(call, index, TensorForm(dtype=form.dtype, shape=form.shape)), native)
        for index, (form, native) in enumerate(zip(outputs, expected.native, strict=True))
    )


def check_call(
    made: Round,
    calls: SharedCalls,
    call: int,
    expected: Expected,
    largest: LargestErrors,
    least_sizes: Sequence[float] = (),
) -> None:
    """Check the forms and values of one call's outputs; keeps the largest errors. `least_sizes`: of their scales."""
    _check_forms(made, call, expected)
    outputs = made.answer.calls[call].outputs
    for index, form in enumerate(outputs):
        label = label_of(index, len(outputs))
        actual = calls.output(call, index, TensorForm(dtype=form.dtype, shape=form.shape))
        least = least_sizes[index] if least_sizes else 0.0
        comparison = compare_output(actual, expected, index, calls.sets[call], label, least)
        if not comparison.agrees:
            raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_VALUES, comparison.message)
        if form.expanded:
            raise CandidateFailedError(
                Status.REJECTED, ErrorCategory.EXPANDED_OUTPUT, f"{label} repeats elements by a stride of 0"
            )
        largest.absolute = max(largest.absolute, comparison.max_abs_error or 0.0)
        largest.relative = max(largest.relative, comparison.max_rel_error or 0.0)


def _check_forms(made: Round, call: int, expected: Expected) -> None:
    """Check structure, types and shapes of one call's outputs."""
    outputs = made.answer.calls[call].outputs
    check_structure(len(outputs), made.answer.calls[call].structure, expected)
    for index, (form, native) in enumerate(zip(outputs, expected.native, strict=True)):
        check_form(form if form.kind == "tensor" else None, form.type, native, label_of(index, len(outputs)))


def check_attribution(
    attribution: Attribution, own_names: Collection[str], config: JudgeConfig, is_repeated: bool = True
) -> None:
    """Refuse a candidate if its own kernels did not do the work.

    If none of them is in the profile, it is a fault of the measurement the first time (UnreliableTimingError): CUPTI
    loses records on a busy machine.
    """
    if suspicious_names(own_names):
        name = suspicious_names(own_names)[0]
        raise CandidateFailedError(
            Status.REJECTED, ErrorCategory.DISGUISED_KERNEL, f"a kernel is called {name}, like a library's"
        )
    if attribution.own_ns == 0:
        message = "no kernel of the source ran on the device"
        if not is_repeated:
            raise UnreliableTimingError(ErrorCategory.NO_KERNEL_LAUNCHED, message)
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.NO_KERNEL_LAUNCHED, message)
    if config.policy == "strict" and attribution.library_names:
        names = ", ".join(name[:80] for name in attribution.library_names[:3])
        raise CandidateFailedError(
            Status.REJECTED, ErrorCategory.LIBRARY_COMPUTE, f"ran kernels that are not its own: {names}"
        )
    if attribution.own_share < config.min_own_time:
        raise CandidateFailedError(
            Status.REJECTED,
            ErrorCategory.LIBRARY_COMPUTE,
            f"own kernels take {attribution.own_share:.0%} of the device time",
        )


def check_profiled_time(candidate_s: float, kernels_s: float, is_repeated: bool) -> None:
    """Refuse a candidate whose timed calls take less than its kernels ran for in a profiled call.

    A profile counts the time for which another process had the device. The first time it is a fault of the measurement
    (UnreliableTimingError), and the candidate is refused if it happens again.
    """
    if candidate_s < _PROFILED_SHARE * kernels_s:
        message = (
            f"timed calls take {1e6 * candidate_s:.2f} µs, the profiled one ran kernels for {1e6 * kernels_s:.2f} µs"
        )
        if not is_repeated:
            raise UnreliableTimingError(ErrorCategory.UNLIKE_PROFILE, message)
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNLIKE_PROFILE, message)


def check_same_kernels(
    first: Attribution, first_calls: int, again: Attribution, calls: int, is_repeated: bool, outputs: int = 1
) -> None:
    """Refuse a candidate whose timed calls launch other kernels than its checked ones, on other streams, or far less.

    `first_calls`, `calls`: how many calls were profiled. `outputs`: of a call; a checked one copies each to its slot.
    A profile on a busy machine may lack records. If one of them only lacks what the other has, it is a fault of the
    measurement the first time (UnreliableTimingError).
    """
    names = sorted({*first.counts, *again.counts})
    each = [(first.counts.get(name, 0) / first_calls, again.counts.get(name, 0) / calls) for name in names]
    differ = [index for index, pair in enumerate(each) if max(pair) - min(pair) > _OTHER_LAUNCHES * max(pair)]
    if differ:
        before, after = each[differ[0]]
        message = f"checked calls launch {names[differ[0]][:80]} {before:.2f} times each, timed ones {after:.2f} times"
        if not is_repeated and len({each[index][0] > each[index][1] for index in differ}) == 1:
            raise UnreliableTimingError(ErrorCategory.UNLIKE_PROFILE, message)
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNLIKE_PROFILE, message)
    before, after = first.launches / first_calls, again.launches / calls
    if before > _MORE_ACTIVITIES * after + _FEW_ACTIVITIES + outputs:
        message = f"checked calls copy, fill and launch {before:.1f} times each, timed ones {after:.1f} times"
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNLIKE_PROFILE, message)
    if again.uses_side_streams and not first.uses_side_streams:
        raise CandidateFailedError(
            Status.REJECTED, ErrorCategory.UNLIKE_PROFILE, "timed calls alone use another stream"
        )


def check_waited_for(serial_s: float, longest_s: float, is_repeated: bool) -> None:
    """Refuse a candidate of which a call alone seems to take less time than one of its kernels: nothing waits for it.

    `longest_s`: time of a call's longest kernel. With inputs that have just arrived, and lie in the cache, it may take
    half as long. A round without calls is taken off, which is longer than a small kernel: a worker whose clock was set
    on a busy machine found 29 honest kernels of 2 µs to take none. So the first time it is a fault of the measurement.
    """
    if serial_s < _ALONE_SHARE * longest_s:
        message = f"a call alone takes {1e6 * serial_s:.2f} µs, one of its kernels {1e6 * longest_s:.2f}"
        if not is_repeated:
            raise UnreliableTimingError(ErrorCategory.UNJOINED_STREAM, message)
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.UNJOINED_STREAM, message)


def check_reference_time(reference_s: float, quiet: Estimate, is_gated: bool) -> None:
    """Raise UnreliableTimingError if the reference is much slower beside a candidate than without any on the device.

    `quiet`: its time before the candidate's code was loaded; `is_gated`: the host's time, which varies by more, is no
    part of either. `believed_s` keeps a slower reference from counting, however it was timed.
    """
    if is_gated and is_slowed(reference_s, quiet):
        message = (
            f"the reference took {1e3 * reference_s:.4f} ms beside this kernel, {1e3 * quiet.seconds:.4f} ms before"
        )
        raise UnreliableTimingError(ErrorCategory.SLOWED_REFERENCE, message, reference_s)


def is_slowed(reference_s: float, quiet: Estimate) -> bool:
    """True if the reference's time is much longer than without a candidate."""
    return reference_s > _SLOWED * (1 + 3 * quiet.spread) * quiet.seconds


def believed_s(reference_s: float, quiet: Estimate) -> float:
    """Return the reference's time that counts: of two that differ by more than noise, the one without a candidate."""
    return quiet.seconds if reference_s > quiet.seconds * (1 + max(_NOISE, 3 * quiet.spread)) else reference_s


def check_folder(folder: Path) -> None:
    """Refuse a candidate whose files take more, or whose folders lie deeper, than what compilers leave there."""
    try:
        total = _bytes_in(folder, depth=1)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.ENAMETOOLONG):  # a candidate makes no others
            raise
        raise _over_quota(f"its folders cannot be read: {error.strerror}") from error
    if total > _FOLDER_BYTES:
        raise _over_quota(f"its files take {total / 2**20:.0f} MiB, expected at most {_FOLDER_BYTES >> 20}")


def _bytes_in(folder: str | Path, depth: int) -> int:
    """Return the bytes that the files below a folder take. What goes away meanwhile counts nothing."""
    if depth > _FOLDER_DEPTH:
        raise _over_quota(f"its folders lie deeper than {_FOLDER_DEPTH}")
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:  # a compiler's
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
                if entry.is_dir(follow_symlinks=False):
                    total += _bytes_in(entry.path, depth + 1)
    return total


def _over_quota(message: str) -> CandidateFailedError:
    return CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.DISK_QUOTA, message)


def check_floor(candidate_s: float, floor_s: float) -> None:
    """Refuse a candidate that takes less time than the device needs (kernels_eval.gpu.timing.statistics.floor_s)."""
    if candidate_s < floor_s:
        message = f"{1e6 * candidate_s:.2f} µs is less than the {1e6 * floor_s:.2f} µs that the device needs at best"
        raise CandidateFailedError(Status.REJECTED, ErrorCategory.BELOW_ROOFLINE, message)


def check_dependence(made: Round, calls: SharedCalls, expected_sets: list[Expected]) -> None:
    """Refuse a candidate if its result is right although its kernels were suppressed."""
    for call, expected in enumerate(expected_sets):
        for index, (form, native) in enumerate(zip(made.answer.calls[call].outputs, expected.native, strict=False)):
            same_form = (
                form.kind == "tensor" and form.shape == tuple(native.shape) and form.dtype == NAMES[native.dtype]
            )
            if not same_form:
                continue
            actual = calls.output(call, index, TensorForm(dtype=form.dtype, shape=form.shape))
            is_filled = not bool((actual != actual).all())
            if not is_filled or not compare_output(actual, expected, index, calls.sets[call], "output").agrees:
                return
    raise CandidateFailedError(
        Status.REJECTED, ErrorCategory.DECOY_KERNEL, "the result does not depend on the source's own kernels"
    )
