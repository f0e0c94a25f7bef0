"""Timing of a candidate against the reference, in the judge's worker: rounds of calls until both medians are known.

Each round draws fresh inputs. The reference makes the calls in this process, then the candidate makes the same calls in
its own, and every output of the candidate is checked. The first calls of a round are not counted: clocks and caches
settle.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import torch

from kernels_eval.correctness.outputs import flat
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.session import Round, RoundRequest
from kernels_eval.gpu.shared_memory import SharedCalls
from kernels_eval.gpu.stopwatch import Stopwatch
from kernels_eval.gpu.timing_statistics import Estimate, clock_disagreement, estimate, is_settled, pause_s
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.verdict import Status

UNCOUNTED = 2
"""Calls at the start of a round whose times are dropped."""
MIN_ROUNDS = 2
_MAX_DISAGREEMENTS = 1


class UnreliableTimingError(Exception):
    """The measurement failed, which says nothing of the kernel. `category` names the reason."""

    def __init__(self, category: str, message: str) -> None:
        super().__init__(message)
        self.category = category


@dataclass
class Measured:
    """Measurements of all rounds together."""

    candidate: Estimate
    reference: Estimate
    rounds: int
    disagreements: list[str] = field(default_factory=list[str])
    candidate_pause_s: float = 0.0
    host_ms: list[float] = field(default_factory=list[float])
    """Time of one call in each round by the judge's clock, less the overhead."""


@dataclass(frozen=True)
class Calibration:
    """Overhead of a round: its time by the judge's clock without the calls, in a process that has no candidate yet.

    Contains messages, flushes of the L2 cache, pauses and copies of the outputs.
    """

    pause_s: float
    overhead_s: float


@dataclass(frozen=True)
class TimingPlan:
    """Plan by which a candidate is timed."""

    calls: int
    """In each round."""
    synchronised: bool
    """Wait for the whole device before each call, since the candidate uses side streams."""
    enqueue_s: float
    """Host time to enqueue one call of the candidate."""
    calibration: Calibration
    precision: float
    rounds: int
    wall_s: float
    latency_s: float
    profiled_round: int
    """Number of the round, secretly drawn, that is profiled and not counted."""


class Timer:
    """Times by the judge's clock. Needs a CUDA context."""

    def __init__(self, stopwatch: Stopwatch, synchronize: Callable[[], None]) -> None:
        self._stopwatch = stopwatch
        self._synchronize = synchronize
        self._flush_s: float | None = None

    @property
    def flush_s(self) -> float:
        """Time to flush the L2 cache."""
        if self._flush_s is None:
            for _ in range(20):
                self._stopwatch.flush()
            timed = self._stopwatch.run([self._stopwatch.flush] * 8, lambda index, result: None, 0.0, False)
            self._flush_s = median(timed.device_ms) / 1e3
        return self._flush_s

    def reference_round(self, forward: Any, calls: SharedCalls, wait_s: float) -> tuple[list[float], float]:
        """Return device seconds of each call of the reference, and its enqueueing time."""
        made: list[Callable[[], Any]] = [partial(forward, *inputs) for inputs in calls.local_inputs()]
        with torch.no_grad():
            timed = self._stopwatch.run(made, _copier(calls), wait_s, False)
        return [value / 1e3 for value in timed.device_ms], timed.enqueue_s

    def empty_round_s(self, calls: SharedCalls, wait_s: float, synchronised: bool) -> float:
        """Return the time of a round by the host's clock without the calls themselves."""
        calls.local_inputs()
        outputs = [
            torch.zeros(form.shape, dtype=DTYPES[form.dtype], device=cuda_driver.DEVICE) for form in calls.output_forms
        ]
        copier = _copier(calls)
        times: list[float] = []
        for _ in range(3):
            self._synchronize()
            started = time.perf_counter()
            self._stopwatch.run([lambda: outputs] * calls.count, copier, wait_s, synchronised)
            times.append(time.perf_counter() - started)
        return median(times)

    def _overhead_s(self, plan: TimingPlan, calls: SharedCalls, wait_s: float) -> float:
        """Return the overhead of a round: as calibrated, corrected for another pause or for waiting for the device."""
        calibration = plan.calibration
        if wait_s == calibration.pause_s and not plan.synchronised:
            return calibration.overhead_s
        as_calibrated = self.empty_round_s(calls, calibration.pause_s, False)
        as_planned = self.empty_round_s(calls, wait_s, plan.synchronised)
        return max(0.0, calibration.overhead_s + as_planned - as_calibrated)

    def measure(
        self,
        plan: TimingPlan,
        forward: Any,
        new_calls: Callable[[], SharedCalls],
        run: Callable[[SharedCalls, RoundRequest], Round],
    ) -> Measured:
        """Time until settled. `new_calls` draws inputs; `run` has the candidate make a round, and checks it."""
        candidate: list[float] = []
        reference: list[float] = []
        disagreements: list[str] = []
        host_ms: list[float] = []
        started = time.perf_counter()
        candidate_wait = max(pause_s(plan.enqueue_s, self.flush_s), plan.calibration.pause_s)
        reference_wait = candidate_wait
        number = counted = 0
        overhead_s: float | None = None
        while number < plan.rounds + 1:
            calls = new_calls()
            if number == 0:  # not counted: the reference settles, and its enqueueing time is measured
                _, reference_enqueue = self.reference_round(forward, calls, reference_wait)
                reference_wait = pause_s(reference_enqueue, self.flush_s)
            reference_s, _ = self.reference_round(forward, calls, reference_wait)
            if overhead_s is None:
                overhead_s = self._overhead_s(plan, calls, candidate_wait)
            profiled = number == plan.profiled_round
            request = RoundRequest(candidate_wait, plan.synchronised, poison=False, profiled=profiled)
            made = run(calls, request)
            number += 1
            if profiled:
                continue
            counted += 1
            device_s = [value / 1e3 for value in made.answer.device_ms]
            if len(device_s) != plan.calls:
                raise CandidateFailedError(Status.REJECTED, "malformed_answer", "the process timed other calls")
            host_ms.append(1e3 * (made.host_s - overhead_s) / plan.calls)
            disagreement = clock_disagreement(made.host_s, overhead_s, device_s, plan.latency_s)
            if disagreement is not None:
                disagreements.append(disagreement)
                overhead_s = None  # measured again: the machine may have been busy
            uncounted = min(UNCOUNTED, plan.calls - 1)
            candidate += device_s[uncounted:]
            reference += reference_s[uncounted:]
            if len(disagreements) > max(_MAX_DISAGREEMENTS, counted // 2):
                raise UnreliableTimingError("clock_disagreement", disagreements[-1])
            spent = time.perf_counter() - started
            settled = counted >= MIN_ROUNDS and is_settled(candidate, reference, plan.precision)
            if number > plan.profiled_round and counted > 2 * len(disagreements) and (settled or spent > plan.wall_s):
                break
        return Measured(estimate(candidate), estimate(reference), counted, disagreements, candidate_wait, host_ms)


def _copier(calls: SharedCalls) -> Callable[[int, Any], None]:
    """Return what copies a call's outputs to their slots, as the candidate's process does."""

    def copy(call: int, result: Any) -> None:
        outputs, _ = flat(result)
        for index, (output, form) in enumerate(zip(outputs, calls.output_forms, strict=True)):
            if form.nbytes:
                calls.output(call, index, form).copy_(output)

    return copy
