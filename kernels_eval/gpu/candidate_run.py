"""Grading of one candidate on a GPU, in the judge's worker: load, check, profile, time.

In this order, up to the first failure: trials at the full size (the first input set twice, to check a second call on
the same input too), a trial at another leading size if the problem has one, a profiled round, for policy `mixed` a
round in which the candidate's kernels do nothing, then timing rounds (kernels_eval.gpu.timing). A wrong kernel is never
timed.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernels_eval.backends import Backend, backend_named
from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.gpu.device import DeviceFacts, DeviceLock
from kernels_eval.gpu.profiling import Attribution, attribution_of
from kernels_eval.gpu.reference import CallSets, GpuReference, output_forms
from kernels_eval.gpu.round_checks import (
    LargestErrors,
    check_attribution,
    check_dependence,
    check_floor,
    check_profiled_time,
    check_reference_time,
    check_round,
)
from kernels_eval.gpu.session import Round, RoundRequest, Session
from kernels_eval.gpu.shared_memory import IpcTransport, SharedCalls, Transport
from kernels_eval.gpu.timing import Calibration, Measured, Timer, TimingPlan
from kernels_eval.gpu.timing_statistics import ROUND_LATENCY_S, floor_s
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.verdict import Resources, Status, TimingSource, Verdict

JUDGE_WALL_S = 60.0
"""Wall time added to a candidate's limits for the judge's part of the session, and for waiting for the device."""
MAX_REFERENCES = 32
_COPY_BYTES_PER_S = 1e9
CALIBRATION_PAUSE_S = 300e-6
"""Hides the enqueueing of most candidates (100 to 200 µs, mostly Triton's launcher): no correction is needed then."""
_CALIBRATION_ROUNDS = 4


@dataclass
class WorkerState:
    """State that a worker keeps across candidates."""

    fork_server: ForkServer
    descriptor: int
    """The host file that candidates may map."""
    facts: DeviceFacts
    timer: Timer
    transport: Transport
    lock: DeviceLock
    memory_bytes: int = 1 << 50
    """Device memory that this worker may take."""
    calibrations: "OrderedDict[str, Calibration]" = field(default_factory=OrderedDict[str, Calibration])
    """By problem."""
    best_reference_s: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Shortest time of the reference, by problem and baseline."""


class CandidateRun:
    """Grades one candidate: `verdict` is called once."""

    def __init__(
        self, state: WorkerState, reference: GpuReference, config: JudgeConfig, seed: SecretSeed, job: dict[str, Any]
    ) -> None:
        """`job`: the message to the candidate's process (kernels_eval.gpu.candidate)."""
        self._state = state
        self._reference = reference
        self._config = config
        self._job = job
        self._backend: Backend = backend_named(config.backend)
        self._own_names = self._backend.own_kernels(job["source"])
        self._errors = LargestErrors()
        self._resources: tuple[Resources, ...] = tuple(Resources(**used) for used in job["build"].get("resources", []))
        self._sets = CallSets(reference, seed, state.transport, state.memory_bytes)
        self._calibration = Calibration(0.0, 0.0)
        self.measured: Measured | None = None

    def verdict(self) -> Verdict:
        """Load, check, profile and time the candidate."""
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + JUDGE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb, folder=self._job["scratch"])
        compiled = self._backend.builds
        try:
            calls, expected_sets = self._sets.trial(None, config.trials)
            self._state.transport.memory(max(calls.nbytes, self._sets.timing_bytes(expected_sets[0])))
            with Session(self._state.fork_server, limits, self._state.descriptor) as session:
                self._load(session, calls.sets[0], expected_sets[0])
                compiled = True
                if self._reference.state(False):
                    calls, expected_sets = self._sets.trial(None, config.trials)
                made = self._round(
                    session, calls, expected_sets, RoundRequest(resources=True), config.compile_timeout_s
                )
                self._resources = self._resources or made.answer.resources
                self._try_hidden_size(session)
                return self._correct(self._timed(session))
        except CandidateFailedError as failed:
            return failed.verdict(compiled, self._resources)

    def _load(self, session: Session, inputs: list[Any], expected: Expected) -> None:
        session.start({**self._job, "memory": self._state.transport.mapping()})
        self._calibration = self._calibrate(session, expected)
        session.set_weights(self._reference.weights_for(session.load(), inputs))
        self._sets.perturbed = True

    def _calibrate(self, session: Session, expected: Expected) -> Calibration:
        """Return the overhead of a round of this problem, measured in a process that has no candidate yet."""
        known = self._state.calibrations
        if self._reference.digest not in known:
            calls = self._sets.timed(self._sets.calls_a_round(expected), output_forms(expected))
            request = RoundRequest(CALIBRATION_PAUSE_S, poison=False)
            overhead_s: list[float] = []
            with self._state.lock:
                for _ in range(_CALIBRATION_ROUNDS):
                    made = session.calibrate(calls, request, JUDGE_WALL_S)
                    overhead_s.append(made.host_s - sum(made.answer.device_ms) / 1e3)
            known[self._reference.digest] = Calibration(CALIBRATION_PAUSE_S, median(overhead_s))
            if len(known) > MAX_REFERENCES:
                known.popitem(last=False)
        return known[self._reference.digest]

    def _round(
        self,
        session: Session,
        calls: SharedCalls,
        expected: Iterable[Expected],
        request: RoundRequest,
        extra_s: float = 0,
    ) -> Round:
        """Have a round made within the candidate's time limit plus `extra_s`, and check it."""
        made = session.run(calls, request, self._config.timeout_s + extra_s)
        check_round(made, calls, expected, self._errors)
        return made

    def _try_hidden_size(self, session: Session) -> None:
        reference = self._reference
        if not reference.can_be_reduced or reference.full_size is None or reference.has_square_input:
            return
        calls, expected_sets = self._sets.trial(reference.full_size // 2, self._config.trials)
        self._round(session, calls, expected_sets, RoundRequest(), self._config.compile_timeout_s)

    def _timed(self, session: Session) -> Measured:
        """Profile and time the candidate."""
        config = self._config
        inputs, expected_sets = self._sets.own(2)
        forms = output_forms(expected_sets[0])
        with self._state.lock:
            profiled = self._sets.shared(inputs, forms)
            attribution = self._profiled(session, profiled, expected_sets)
            settling = self._round(session, profiled, expected_sets, RoundRequest(poison=False))
            plan = self._plan(expected_sets[0], attribution, settling.answer.enqueue_s)

            def run(calls: SharedCalls, request: RoundRequest) -> Round:
                made = self._round(session, calls, self._sets.expected(calls), request)
                if made.answer.kernels:
                    self._attribution(made)
                return made

            forward = self._reference.forward(self._sets.perturbed, config.baseline == "compile")
            measured = self._state.timer.measure(plan, forward, lambda: self._sets.timed(plan.calls, forms), run)
        self.measured = measured
        if not attribution.uses_side_streams:  # on several streams kernels run at once
            check_profiled_time(measured.candidate.median, attribution.computing_ns / 1e9 / len(expected_sets))
        self._check_bounds(measured, forms)
        return measured

    def _profiled(self, session: Session, calls: SharedCalls, expected_sets: list[Expected]) -> Attribution:
        """Check which kernels run on the device, and under `mixed` that the result depends on the candidate's."""
        made = self._round(session, calls, expected_sets, RoundRequest(profiled=True, poison=False))
        attribution = self._attribution(made)
        if self._config.policy != "strict" and self._backend.can_suppress:
            suppressed = session.run(calls, RoundRequest(suppressed=True), self._config.timeout_s)
            check_dependence(suppressed, calls, expected_sets)
        return attribution

    def _attribution(self, made: Round) -> Attribution:
        """Return the attribution of a profiled round, checked."""
        attribution = attribution_of(made.answer.kernels, self._own_names)
        check_attribution(attribution, self._own_names, self._config)
        return attribution

    def _plan(self, expected: Expected, attribution: Attribution, enqueue_s: float) -> TimingPlan:
        config = self._config
        latency_s = ROUND_LATENCY_S
        if self._state.transport.name != IpcTransport.name:
            latency_s += 2 * self._sets.timing_bytes(expected) / _COPY_BYTES_PER_S
        return TimingPlan(
            calls=self._sets.calls_a_round(expected),
            synchronised=attribution.uses_side_streams,
            enqueue_s=enqueue_s,
            calibration=self._calibration,
            precision=config.timing_precision,
            rounds=config.timing_rounds,
            wall_s=config.timing_s,
            latency_s=latency_s,
            profiled_round=secrets.randbelow(3),
        )

    def _check_bounds(self, measured: Measured, forms: list[TensorForm]) -> None:
        """Check the reference's time against its best, and the candidate's against the device's peak rates."""
        reference, best_s = self._reference, self._state.best_reference_s
        key = (reference.digest, self._config.baseline)
        reference_s = measured.reference.median
        check_reference_time(reference_s, best_s.get(key))
        best_s[key] = min(reference_s, best_s.get(key, reference_s))
        written = sum(form.nbytes for form in forms)
        flops = sum(launch.matrix_flops for launch in reference.eager_launches)
        check_floor(measured.candidate.median, floor_s(reference.input_bytes, written, flops, self._state.facts.rates))

    def _correct(self, measured: Measured) -> Verdict:
        candidate_s, reference_s = measured.candidate.median, measured.reference.median
        return Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=reference_s / candidate_s,
            candidate_ms=1e3 * candidate_s,
            reference_ms=1e3 * reference_s,
            timing_source=TimingSource.GPU,
            max_abs_error=self._errors.absolute,
            max_rel_error=self._errors.relative,
            resources=self._resources,
        )
