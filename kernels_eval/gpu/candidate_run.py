"""Grading of one candidate on a GPU, in the judge's worker: load, check, profile, time.

Order, with an early exit at the first failure: trials at the full size (the first input set twice, to check a second call
on the same input too), a trial at another leading size if the problem has one, a profiled round, for policy `mixed` a round
in which the candidate's kernels do nothing, then timing rounds (kernels_eval.gpu.timing). A wrong kernel is never timed.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernels_eval.backends import Backend, backend_named
from kernels_eval.config import JudgeConfig
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
from kernels_eval.reference.expected import Expected
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm
from kernels_eval.verdict import Resources, Status, TimingSource, Verdict

JUDGE_WALL_S = 60.0
"""Wall time added to a candidate's limits for the judge's part of the session, and for waiting for the device."""
MAX_REFERENCES = 32
_COPY_BYTES_PER_S = 1e9
CALIBRATION_PAUSE_S = 300e-6
"""Hides the enqueueing of most candidates (100 to 200 µs, mostly Triton's launcher): their rounds then need no correction."""
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
    calibrations: "OrderedDict[str, Calibration]" = field(default_factory=OrderedDict[str, Calibration])
    """By problem."""
    best_reference_s: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Shortest time of the reference, by problem and baseline."""


class CandidateRun:
    """Grades one candidate: `verdict` is called once."""

    def __init__(
        self,
        state: WorkerState,
        reference: GpuReference,
        config: JudgeConfig,
        seed: SecretSeed,
        job: dict[str, Any],
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
        self._sets = CallSets(reference, seed, state.transport)
        self._calibration = Calibration(0.0, 0.0)
        self.measured: Measured | None = None

    def verdict(self) -> Verdict:
        """Load, check, profile and time the candidate."""
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + JUDGE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb)
        compiled = self._backend.builds
        try:
            calls, expected_sets = self._sets.trial(None, config.trials)
            self._state.transport.memory(max(calls.nbytes, self._sets.timing_bytes(expected_sets[0])))
            with Session(self._state.fork_server, limits, self._state.descriptor) as session:
                self._load(session, expected_sets[0])
                compiled = True
                if self._sets.perturbed:
                    calls, expected_sets = self._sets.trial(None, config.trials)
                first_wall_s = config.timeout_s + config.compile_timeout_s
                made = session.run(calls, RoundRequest(resources=True), first_wall_s)
                check_round(made, calls, expected_sets, self._errors)
                self._resources = self._resources or made.answer.resources
                self._try_hidden_size(session)
                return self._correct(*self._timed(session))
        except CandidateFailedError as failed:
            return failed.verdict(compiled, self._resources)

    def _load(self, session: Session, expected: Expected) -> None:
        reference = self._reference
        session.start({**self._job, "memory": self._state.transport.mapping()})
        self._calibration = self._calibrate(session, expected)
        state = session.load()
        wanted = reference.state(False)

        def matches(name: str) -> bool:
            tensor = wanted[name]
            return state.get(name) == (NAMES.get(tensor.dtype, "?"), tuple(tensor.shape))

        self._sets.perturbed = bool(wanted) and all(matches(name) for name in wanted)
        weights = reference.state(self._sets.perturbed)
        session.set_weights({name: weights[name] for name in wanted if matches(name)})

    def _calibrate(self, session: Session, expected: Expected) -> Calibration:
        """Return the overhead of a round of this problem, measured in a process that has no candidate yet."""
        known = self._state.calibrations
        if self._reference.digest not in known:
            forms = output_forms(expected)
            calls = self._sets.shared([self._sets.inputs() for _ in range(self._sets.calls_a_round(expected))], forms)
            request = RoundRequest(CALIBRATION_PAUSE_S, poison=False)
            overhead_s: list[float] = []
            with self._state.lock:
                for _ in range(_CALIBRATION_ROUNDS):
                    made = session.calibrate(calls, forms, request, JUDGE_WALL_S)
                    overhead_s.append(made.host_s - sum(made.answer.device_ms) / 1e3)
            known[self._reference.digest] = Calibration(CALIBRATION_PAUSE_S, median(overhead_s))
            if len(known) > MAX_REFERENCES:
                known.popitem(last=False)
        return known[self._reference.digest]

    def _try_hidden_size(self, session: Session) -> None:
        reference = self._reference
        if not reference.can_be_reduced or reference.full_size is None or reference.has_square_input:
            return
        calls, expected_sets = self._sets.trial(reference.full_size // 2, self._config.trials)
        made = session.run(calls, RoundRequest(), self._config.timeout_s + self._config.compile_timeout_s)
        check_round(made, calls, expected_sets, self._errors)

    def _timed(self, session: Session) -> tuple[Measured, list[TensorForm]]:
        """Profile and time the candidate; returns its times, and the forms of its outputs."""
        config = self._config
        inputs, expected_sets = self._sets.own(2)
        forms = output_forms(expected_sets[0])
        with self._state.lock:
            profiled = self._sets.shared(inputs, forms)
            attribution = self._profiled(session, profiled, expected_sets)
            settling = session.run(profiled, RoundRequest(poison=False), config.timeout_s)
            check_round(settling, profiled, expected_sets, self._errors)
            plan = self._plan(expected_sets[0], attribution)
            drawn: list[list[Any]] = []

            def new_calls() -> SharedCalls:
                drawn[:] = [self._sets.inputs() for _ in range(plan.calls)]
                return self._sets.shared(drawn, forms)

            def expected_of_drawn() -> Iterator[Expected]:
                return (self._reference.expected(inputs, self._sets.perturbed) for inputs in drawn)

            def check(made: Round, calls: SharedCalls) -> None:
                check_round(made, calls, expected_of_drawn(), self._errors)
                if made.answer.kernels:
                    check_attribution(attribution_of(made.answer.kernels, self._own_names), self._own_names, config)

            measured = self._state.timer.measure(
                plan,
                self._reference.forward(self._sets.perturbed, config.baseline == "compile"),
                forms,
                new_calls,
                lambda calls, request: session.run(calls, request, config.timeout_s),
                check,
                settling.answer.enqueue_s,
                self._calibration,
            )
        self.measured = measured
        if not attribution.uses_side_streams:  # on several streams kernels run at once
            check_profiled_time(measured.candidate.median, attribution.computing_ns / 1e9 / len(expected_sets))
        return measured, forms

    def _profiled(self, session: Session, calls: SharedCalls, expected_sets: list[Expected]) -> Attribution:
        """Check which kernels run on the device, and under `mixed` that the result depends on the candidate's."""
        config = self._config
        made = session.run(calls, RoundRequest(profiled=True, poison=False), config.timeout_s)
        check_round(made, calls, expected_sets, self._errors)
        attribution = attribution_of(made.answer.kernels, self._own_names)
        check_attribution(attribution, self._own_names, config)
        if config.policy != "strict" and self._backend.can_suppress:
            suppressed = session.run(calls, RoundRequest(suppressed=True), config.timeout_s)
            check_dependence(suppressed, calls, expected_sets)
        return attribution

    def _plan(self, expected: Expected, attribution: Attribution) -> TimingPlan:
        config = self._config
        latency_s = ROUND_LATENCY_S
        if self._state.transport.name != IpcTransport.name:
            latency_s += 2 * self._sets.timing_bytes(expected) / _COPY_BYTES_PER_S
        return TimingPlan(
            calls=self._sets.calls_a_round(expected),
            synchronised=attribution.uses_side_streams,
            precision=config.timing_precision,
            rounds=config.timing_rounds,
            wall_s=config.timing_s,
            latency_s=latency_s,
            profiled_round=secrets.randbelow(3),
        )

    def _correct(self, measured: Measured, forms: list[TensorForm]) -> Verdict:
        reference = self._reference
        candidate_s, reference_s = measured.candidate.median, measured.reference.median
        best_s = self._state.best_reference_s
        key = (reference.digest, self._config.baseline)
        best = best_s.get(key)
        check_reference_time(reference_s, best)
        best_s[key] = min(reference_s, best or reference_s)
        read = sum(form.nbytes for form in reference.full_forms if isinstance(form, TensorForm))
        flops = sum(launch.flops for launch in reference.eager_launches)
        check_floor(candidate_s, floor_s(read, sum(form.nbytes for form in forms), flops, self._state.facts.rates))
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
