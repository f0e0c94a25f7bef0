"""Checks of rounds and of times on a GPU."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.gpu.candidate.profiling import Attribution
from kernels_eval.gpu.candidate.session import Round, RoundAnswer
from kernels_eval.gpu.round_checks import (
    LargestErrors,
    believed_s,
    check_attribution,
    check_floor,
    check_profiled_time,
    check_reference_time,
    check_round,
    check_streams,
)
from kernels_eval.gpu.timing.statistics import Estimate
from kernels_eval.gpu.timing.timer import UnreliableTimingError
from kernels_eval.sandbox.child import CandidateFailedError

QUIET = Estimate(1e-3, 0.001, 3)


class NoCalls:
    """A round without calls, in which nothing was touched."""

    count = 0

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
    check_round(Round(RoundAnswer(kind="round", calls=(), **observed), host_s=1e-3), calls, (), LargestErrors())


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


def test_a_kernel_named_like_a_librarys() -> None:
    attribution = Attribution(100, 0, (), 1, False)
    assert refusal(lambda: check_attribution(attribution, {"cutlass_gemm"}, JudgeConfig())) == "disguised_kernel"


@pytest.mark.parametrize(
    ("check", "category"),
    [
        (lambda: check_profiled_time(8.6e-6, 10e-6, True), None),
        (lambda: check_profiled_time(8.4e-6, 10e-6, True), "unlike_profile"),
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


def test_a_profile_that_says_more_is_refused_only_when_it_happens_again() -> None:
    with pytest.raises(UnreliableTimingError) as failed:
        check_profiled_time(5.9e-6, 10e-6, False)
    assert failed.value.category == "unlike_profile"
