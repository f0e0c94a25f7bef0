"""Checks of rounds and of times on a GPU."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ONE, Expected
from kernels_eval.gpu.candidate.profiling import Attribution
from kernels_eval.gpu.candidate.session import CallOutputs, Round, RoundAnswer
from kernels_eval.gpu.round_checks import (
    LargestErrors,
    believed_s,
    check_attribution,
    check_call,
    check_dependence,
    check_floor,
    check_folder,
    check_profiled_time,
    check_reference_time,
    check_round,
    check_same_kernels,
    check_streams,
    check_timed_round,
    check_waited_for,
)
from kernels_eval.gpu.timing.statistics import Estimate
from kernels_eval.gpu.timing.timer import UnreliableTimingError
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.folders import remove_folder
from kernels_eval.sandbox.messages import OutputForm
from kernels_eval.sandbox.tensor_bytes import TensorForm

QUIET = Estimate(1e-3, 0.001, 3)


class NoCalls:
    """A round without calls, in which nothing was touched."""

    count = 0
    sets: tuple[list[torch.Tensor], ...] = ([],)

    def __init__(self, late_writes: bool) -> None:
        self._late_writes = late_writes

    def changed_inputs(self) -> set[int]:
        return set()

    def has_broken_guards(self) -> bool:
        return False

    def has_late_writes(self) -> bool:
        return self._late_writes


def check(late_writes: bool = False, **observed: Any) -> None:
    calls: Any = NoCalls(late_writes)
    made = Round(RoundAnswer(kind="round", calls=(), **observed), host_s=1e-3)
    check_round(made, calls, (), LargestErrors(), lambda _, found: found)


class OneCall(NoCalls):
    """A round of one call with one output."""

    count = 1

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__(late_writes=False)
        self._output = output

    def output(self, call: int, index: int, form: TensorForm) -> torch.Tensor:
        return self._output


NATIVE = torch.linspace(1.0, 2.0, 64)
LOST = NATIVE * (1.0 + 3e-4)
"""The same result with the digits that the reference loses in its own precision."""


def compared(output: torch.Tensor, oracle: list[torch.Tensor], expanded: bool = False) -> tuple[str | None, int]:
    """Check one call; returns the category of its refusal, and how often the oracle was asked."""
    asked: list[int] = []

    def with_oracle(call: int, found: Expected) -> Expected:
        asked.append(call)
        return found if found.has_oracle else replace(found, oracle=[LOST.double()])

    form = OutputForm(kind="tensor", type="Tensor", dtype="float32", shape=tuple(output.shape), expanded=expanded)
    answer = RoundAnswer(kind="round", calls=(CallOutputs(structure=ONE, outputs=(form,)),))
    expected = Expected([NATIVE], oracle, frozenset(), ONE)
    calls: Any = OneCall(output)
    category = refusal(lambda: check_round(Round(answer, host_s=1e-3), calls, [expected], LargestErrors(), with_oracle))
    return category, len(asked)


def test_the_oracle_is_asked_only_where_an_output_is_not_close_to_the_references() -> None:
    assert compared(NATIVE * (1.0 + 1e-6), []) == (None, 0)
    assert compared(LOST, []) == (None, 1)
    assert compared(NATIVE * 1.01, []) == ("wrong_values", 1)
    assert compared(NATIVE.clone().index_fill_(0, torch.tensor([5]), torch.nan), []) == ("wrong_values", 1)
    assert compared(NATIVE, [], expanded=True) == ("expanded_output", 1)
    assert compared(NATIVE[:8], []) == ("wrong_shape", 0)


class TimedCall(OneCall):
    """A timed round of one call."""

    output_forms = (TensorForm(dtype="float32", shape=(1, 2)),)

    def outputs(self, index: int) -> torch.Tensor:
        return self._output.reshape(1, -1)


def timed(
    output: torch.Tensor, right: torch.Tensor, is_beyond: bool = False, least_sizes: tuple[float, ...] = ()
) -> Any:
    """Return what a timed call is refused for, whose results in either precision are `right`."""
    expected = Expected([right], [right], frozenset(), ONE)
    calls: Any = TimedCall(output)
    form = OutputForm(kind="tensor", type="Tensor", dtype="float32", shape=(1, 2))
    made = Round(RoundAnswer(kind="round", calls=(CallOutputs(structure=ONE, outputs=(form,)),)), host_s=1e-3)
    largest, beyond = LargestErrors(), lambda *_: is_beyond
    return refusal(
        lambda: check_timed_round(
            made, calls, expected, lambda _: [right], lambda _: expected, largest, beyond, lambda _: least_sizes
        )
    )


@pytest.mark.parametrize(("is_beyond", "is_wrong"), [(False, True), (True, False)])
def test_a_timed_call_is_checked_also_where_results_are_infinite_unless_its_inputs_are_too_much(
    is_beyond: bool, is_wrong: bool
) -> None:
    infinite = torch.tensor([[1.0, float("-inf")]])
    assert (timed(torch.zeros(1, 2), infinite, is_beyond) == "wrong_values") is is_wrong


@pytest.mark.parametrize(("least_sizes", "refused"), [((), "wrong_values"), ((0.5,), None)])
def test_a_timed_call_whose_terms_cancelled_is_held_to_a_share_of_the_usual_size(
    least_sizes: tuple[float, ...], refused: str | None
) -> None:
    right = torch.tensor([[7e-4, -5e-4]])
    assert timed(right + 1e-6, right, least_sizes=least_sizes) == refused


def test_an_oracle_that_is_there_is_compared_with() -> None:
    assert compared(LOST, [LOST.double()]) == (None, 1)
    assert compared(NATIVE * 1.01, [LOST.double()]) == ("wrong_values", 1)


def test_places_of_equal_elements_are_right() -> None:
    x = torch.randint(0, 9, (4, 90)).float()
    native = x.topk(8).indices
    expected = Expected([native], [native], frozenset(), ONE, call_again=lambda given: given[0].topk(8))
    form = OutputForm(kind="tensor", type="Tensor", dtype="int64", shape=(4, 8))
    made = Round(RoundAnswer(kind="round", calls=(CallOutputs(structure=ONE, outputs=(form,)),)), host_s=1e-3)
    refused: list[tuple[str | None, str | None]] = []
    for actual in (x.sort(dim=1, stable=True).indices[:, -8:].flip(1), torch.zeros_like(native)):
        one: Any = OneCall(actual)
        one.sets = [[x]]
        suppressed = refusal(partial(check_dependence, made, one, [expected]))
        refused.append((refusal(partial(check_call, made, one, 0, expected, LargestErrors())), suppressed))
    assert refused == [(None, "decoy_kernel"), ("wrong_values", None)]


STREAMS = Attribution(100, 0, (), 1, uses_side_streams=True)


@pytest.mark.parametrize(
    ("attribution", "unjoined_s", "category"),
    [
        (STREAMS, 40e-6, None),  # waiting for an idle device is no work
        (STREAMS, 150e-6, "unjoined_stream"),
        (replace(STREAMS, uses_side_streams=False), 150e-6, None),
    ],
)
def test_side_streams_that_go_on_are_refused(attribution: Attribution, unjoined_s: float, category: str | None) -> None:
    assert refusal(lambda: check_streams(attribution, unjoined_s)) == category


def test_a_round_in_which_nothing_goes_on() -> None:
    check()


@pytest.mark.parametrize(
    ("observed", "category"),
    [({"late_writes": True}, "unjoined_stream"), ({"threads": 2}, "background_thread")],
)
def test_what_goes_on_after_the_call_is_refused(observed: dict[str, Any], category: str) -> None:
    with pytest.raises(CandidateFailedError) as failed:
        check(**observed)
    assert failed.value.category == category


def refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except (CandidateFailedError, UnreliableTimingError) as failed:
        return failed.category
    return None


@pytest.mark.parametrize(
    ("own_ns", "library_ns", "policy", "category"),
    [
        (100, 0, "strict", None),
        (100, 1, "strict", "library_compute"),
        (0, 0, "strict", "no_kernel_launched"),
        (0, 100, "mixed", "no_kernel_launched"),
        (30, 70, "mixed", None),
        (29, 71, "mixed", "library_compute"),
    ],
)
def test_attribution(own_ns: int, library_ns: int, policy: str, category: str | None) -> None:
    config = JudgeConfig.model_validate({"policy": policy, "min_own_time": 0.3})
    names = ("sm80_gemm",) if library_ns else ()
    attribution = Attribution(own_ns, library_ns, names, 1, False)
    assert refusal(lambda: check_attribution(attribution, {"row_softmax"}, config)) == category


def test_a_profile_without_own_kernels_fails_before_it_refuses() -> None:
    nothing = Attribution(0, 0, (), 0, False)
    with pytest.raises(UnreliableTimingError, match="no kernel of the source"):
        check_attribution(nothing, {"row_softmax"}, JudgeConfig(), is_repeated=False)
    with pytest.raises(CandidateFailedError, match="like a library's"):
        check_attribution(nothing, {"cudnn_softmax"}, JudgeConfig(), is_repeated=False)


def twenty_calls(launches: int = 40, side: bool = False, **counts: int) -> Attribution:
    return Attribution(9, 0, (), launches, side, counts=counts or {"mine": 20})


@pytest.mark.parametrize(
    ("checked_launches", "timed", "message"),
    [
        (4, twenty_calls(), None),
        (12, twenty_calls(20), None),  # a checked call copies its output, and fills a few buffers more
        (14, twenty_calls(20), "fill and launch 7.0 times each, timed ones 1.0 times"),
        (4, twenty_calls(mine=10), "launch mine 1.00 times each, timed ones 0.50 times"),
        (4, twenty_calls(other=20), "launch mine 1.00 times each, timed ones 0.00 times"),
        (4, twenty_calls(side=True), "timed calls alone use another stream"),
    ],
)
def test_timed_calls_launch_what_checked_ones_do(
    checked_launches: int, timed: Attribution, message: str | None
) -> None:
    checked = Attribution(1, 0, (), checked_launches, False, counts={"mine": 2})
    with nullcontext() if message is None else pytest.raises(CandidateFailedError, match=message):
        check_same_kernels(checked, 2, timed, 20, is_repeated=True)


@pytest.mark.parametrize(
    ("timed", "is_lost"),
    [
        (twenty_calls(both=20, mine=0), True),
        (Attribution(0, 0, (), 0, False), True),
        (twenty_calls(mine=20, both=20, more=20), True),  # what the first profile lacks
        (twenty_calls(mine=20, other=20), False),
    ],
    ids=["a kernel", "all of them", "a kernel of the first", "another in its place"],
)
def test_a_profile_that_lacks_what_the_other_one_has_is_taken_again(timed: Attribution, is_lost: bool) -> None:
    checked = Attribution(1, 0, (), 4, False, counts={"mine": 2, "both": 2})
    with pytest.raises(UnreliableTimingError if is_lost else CandidateFailedError) as failed:
        check_same_kernels(checked, 2, timed, 20, is_repeated=False)
    assert failed.value.category == "unlike_profile"
    with pytest.raises(CandidateFailedError):
        check_same_kernels(checked, 2, timed, 20, is_repeated=True)


def test_a_kernel_named_like_a_librarys() -> None:
    attribution = Attribution(100, 0, (), 1, False)
    assert refusal(lambda: check_attribution(attribution, {"cutlass_gemm"}, JudgeConfig())) == "disguised_kernel"


@pytest.mark.parametrize(
    ("check", "category"),
    [
        (lambda: check_profiled_time(8.6e-6, 10e-6, True), None),
        (lambda: check_profiled_time(8.4e-6, 10e-6, True), "unlike_profile"),
        (lambda: check_waited_for(0.49e-6, 1.60e-6, True), None),
        (lambda: check_waited_for(-0.14e-6, 1.60e-6, True), "unjoined_stream"),
        (lambda: check_reference_time(1.1e-3, QUIET, True), None),
        (lambda: check_reference_time(1.3e-3, QUIET, True), "slowed_reference"),
        (lambda: check_reference_time(1.3e-3, QUIET, False), None),
        (lambda: check_reference_time(1.3e-3, Estimate(1e-3, 0.1, 3), True), None),
        (lambda: check_floor(5e-6, 5e-6), None),
        (lambda: check_floor(4.9e-6, 5e-6), "below_roofline"),
    ],
)
def test_bounds_on_times(check: Callable[[], None], category: str | None) -> None:
    assert refusal(check) == category


@pytest.mark.parametrize(
    ("reference_s", "spread", "believed"),
    [(0.9e-3, 0.0, 0.9e-3), (1.02e-3, 0.0, 1.02e-3), (1.04e-3, 0.0, 1e-3), (1.1e-3, 0.04, 1.1e-3)],
)
def test_a_slowed_reference_does_not_count(reference_s: float, spread: float, believed: float) -> None:
    assert believed_s(reference_s, Estimate(1e-3, spread, 3)) == believed


def nested(folder: Path, depth: int, name: str = "d") -> None:
    """Make folders within folders, deeper than a path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_files_that_compilers_leave_are_fine(tmp_path: Path) -> None:
    (tmp_path / "triton" / "cache").mkdir(parents=True)
    (tmp_path / "triton" / "cache" / "kernel.cubin").write_bytes(bytes(4096))
    (tmp_path / "link").symlink_to("/")
    (tmp_path / "gone").symlink_to("nowhere")
    check_folder(tmp_path)
    check_folder(tmp_path / "that was removed")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: nested(folder, 1200), "deeper than"),
        (lambda folder: nested(folder, 20, "d" * 250), "cannot be read: File name too long"),
    ],
    ids=["folders", "long names"],
)
def test_folders_that_no_compiler_leaves_are_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path)
    with pytest.raises(CandidateFailedError, match=message) as failed:
        check_folder(tmp_path)
    assert failed.value.category == "disk_quota"
    remove_folder(tmp_path)
    assert not tmp_path.exists()


def test_a_profile_that_says_more_is_refused_only_when_it_happens_again() -> None:
    with pytest.raises(UnreliableTimingError) as failed:
        check_profiled_time(5.9e-6, 10e-6, False)
    assert failed.value.category == "unlike_profile"


def test_a_call_that_seems_to_take_no_time_alone_is_refused_only_when_it_happens_again() -> None:
    """Figures of an honest GELU on an H100 whose empty rounds had been timed while the machine was busy."""
    with pytest.raises(UnreliableTimingError, match=r"a call alone takes -0.14 µs, one of its kernels 1.60") as failed:
        check_waited_for(-0.14e-6, 1.60e-6, False)
    assert failed.value.category == "unjoined_stream"
