"""Rounds until both medians are known: the loop, with a stopwatch and a candidate of known times."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.gpu.session import Round, RoundAnswer, RoundRequest
from kernels_eval.gpu.stopwatch import TimedRound
from kernels_eval.gpu.timing import (
    MIN_ROUNDS,
    UNCOUNTED,
    Calibration,
    Measured,
    Timer,
    TimingPlan,
    UnreliableTimingError,
)
from kernels_eval.sandbox.child import CandidateFailedError

CALLS = 8
REFERENCE_MS = 0.4
OVERHEAD_S = 2e-3


class SteadyStopwatch:
    """Every call takes the same time; nothing is called."""

    def flush(self) -> None: ...

    def run(self, calls: Any, after: Any, pause_s: float, synchronised: bool) -> TimedRound:
        return TimedRound([REFERENCE_MS] * len(calls), 50e-6, 0.0)


def calls() -> Any:
    return SimpleNamespace(count=CALLS, output_forms=[], local_inputs=lambda: [[]] * CALLS)


def measure(run: Callable[[RoundRequest], Round], rounds: int = 10, precision: float = 0.01) -> Measured:
    plan = TimingPlan(
        calls=CALLS,
        synchronised=False,
        enqueue_s=50e-6,
        calibration=Calibration(pause_s=300e-6, overhead_s=OVERHEAD_S),
        precision=precision,
        rounds=rounds,
        wall_s=60.0,
        latency_s=120e-6,
        profiled_round=1,
    )
    stopwatch: Any = SteadyStopwatch()
    return Timer(stopwatch, lambda: None).measure(plan, lambda: None, calls, lambda _, request: run(request))


def answered(device_ms: list[float], host_s: float) -> Round:
    return Round(RoundAnswer(kind="round", calls=(), device_ms=tuple(device_ms)), host_s)


def honest(call_ms: float, seen: list[RoundRequest] | None = None) -> Callable[[RoundRequest], Round]:
    def run(request: RoundRequest) -> Round:
        if seen is not None:
            seen.append(request)
        return answered([call_ms] * CALLS, OVERHEAD_S + CALLS * call_ms / 1e3)

    return run


def test_steady_times_settle_at_once_and_the_profiled_round_is_not_counted() -> None:
    seen: list[RoundRequest] = []
    found = measure(honest(0.1, seen))
    assert found.candidate.median == pytest.approx(1e-4)
    assert found.reference.median == pytest.approx(4e-4)
    assert found.rounds == MIN_ROUNDS
    assert found.candidate.samples == MIN_ROUNDS * (CALLS - UNCOUNTED)
    assert [request.profiled for request in seen] == [False, True, False]
    assert found.host_ms == pytest.approx([0.1] * MIN_ROUNDS)


def test_noise_takes_all_rounds() -> None:
    times = [0.05, 0.15] * (CALLS // 2)
    found = measure(lambda _: answered(times, OVERHEAD_S + sum(times) / 1e3), rounds=5)
    assert found.rounds == 5


def test_one_disagreement_of_the_clocks_is_outvoted() -> None:
    late = iter([True])
    found = measure(lambda _: answered([0.1] * CALLS, OVERHEAD_S + CALLS * (1e-2 if next(late, False) else 1e-4)))
    assert len(found.disagreements) == 1
    assert found.rounds > 2 * len(found.disagreements)


def test_clocks_that_disagree_again_are_a_fault_of_the_measurement() -> None:
    with pytest.raises(UnreliableTimingError) as failed:
        measure(lambda _: answered([0.1] * CALLS, OVERHEAD_S + CALLS * 1e-2))
    assert failed.value.category == "clock_disagreement"


def test_times_of_other_calls_are_refused() -> None:
    with pytest.raises(CandidateFailedError) as failed:
        measure(lambda _: answered([0.1] * (CALLS - 1), OVERHEAD_S))
    assert failed.value.category == "malformed_answer"
