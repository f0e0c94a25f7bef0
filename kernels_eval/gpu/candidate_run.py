"""One candidate's way to its verdict on a GPU: load, check, look at what ran, and only then time it.

Order, with an early exit at the first failure: trials at the true size (the first input set twice, so that a second call on the
same input is checked too), a trial at another leading size where the problem has one, a profiled round, for policy `mixed` a
round in which the candidate's kernels do nothing, then timing rounds (kernels_eval.gpu.timing). A wrong kernel is never timed.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernels_eval.backends import Backend, backend_named
from kernels_eval.config import JudgeConfig
from kernels_eval.gpu.attribution import Coverage, coverage_of
from kernels_eval.gpu.call_sets import CallSets, output_forms
from kernels_eval.gpu.hardware import DeviceFacts
from kernels_eval.gpu.lock import DeviceLock
from kernels_eval.gpu.reference import DeviceReference
from kernels_eval.gpu.round_checks import Errors, check_coverage, check_dependence, check_round
from kernels_eval.gpu.session import DeviceSession, Round, RoundRequest, SharedCalls
from kernels_eval.gpu.shared_memory import IpcTransport, Transport
from kernels_eval.gpu.timing import Measured, Rehearsed, Timer, TimingPlan
from kernels_eval.gpu.timing_statistics import ROUND_LATENCY_S, floor_s
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Expected
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm
from kernels_eval.verdict import Resources, Status, TimingSource, Verdict

SPARE_WALL_S = 60.0
"""Wall time beyond a candidate's own: for the judge's part of the session, and for waiting for the device."""
MAX_REFERENCES = 32
_SLOWED = 1.5
_PROFILED_SHARE = 0.6
"""Of the device time of kernels in a profiled call, which a timed call takes at least."""
_COPY_BYTES_PER_S = 1e9
_REHEARSED_PAUSE_S = 300e-6
"""Hides the enqueueing of most candidates (100 to 200 µs, mostly Triton's launcher), so that their rounds are like the rehearsed ones."""
_REHEARSALS = 4


@dataclass
class Device:
    """What a worker holds of its device, for all candidates."""

    fork_server: ForkServer
    descriptor: int
    """The host file that candidates may map."""
    facts: DeviceFacts
    timer: Timer
    transport: Transport
    lock: DeviceLock
    rehearsed: "OrderedDict[str, Rehearsed]" = field(default_factory=OrderedDict[str, Rehearsed])
    """By problem: what a round takes beside its calls."""
    best_reference_s: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])


class CandidateRun:
    """One candidate: asked for its verdict once."""

    def __init__(
        self,
        device: Device,
        reference: DeviceReference,
        config: JudgeConfig,
        seed: SecretSeed,
        job: dict[str, Any],
    ) -> None:
        """`job`: what the candidate's process is told (kernels_eval.gpu.candidate)."""
        self._device = device
        self._reference = reference
        self._config = config
        self._job = job
        self._backend: Backend = backend_named(config.backend)
        self._own_names = self._backend.own_kernels(job["source"])
        self._errors = Errors()
        self._resources: tuple[Resources, ...] = tuple(Resources(**used) for used in job["build"].get("resources", []))
        self._sets = CallSets(reference, seed, device.transport)
        self._rehearsed = Rehearsed(0.0, 0.0)
        self.measured: Measured | None = None

    def verdict(self) -> Verdict:
        """Judge it."""
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + SPARE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb)
        compiled = self._backend.builds
        try:
            calls, expected_sets = self._sets.trial(None, config.trials)
            self._device.transport.memory(max(calls.nbytes, self._sets.timing_bytes(expected_sets[0])))
            with DeviceSession(self._device.fork_server, limits, self._device.descriptor) as session:
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

    def _load(self, session: DeviceSession, expected: Expected) -> None:
        reference = self._reference
        session.wake({**self._job, "memory": self._device.transport.ticket()})
        self._rehearsed = self._rehearse(session, expected)
        state = session.begin()
        wanted = reference.state(False)

        def matches(name: str) -> bool:
            tensor = wanted[name]
            return state.get(name) == (NAMES.get(tensor.dtype, "?"), tuple(tensor.shape))

        self._sets.perturbed = bool(wanted) and all(matches(name) for name in wanted)
        weights = reference.state(self._sets.perturbed)
        session.set_weights({name: weights[name] for name in wanted if matches(name)})

    def _rehearse(self, session: DeviceSession, expected: Expected) -> Rehearsed:
        """Return what a round of this problem takes beside its calls; measured in a process that has no candidate yet."""
        known = self._device.rehearsed
        if self._reference.digest not in known:
            forms = output_forms(expected)
            calls = self._sets.shared([self._sets.inputs() for _ in range(self._sets.calls_a_round(expected))], forms)
            request = RoundRequest(_REHEARSED_PAUSE_S, poison=False)
            beside_s: list[float] = []
            with self._device.lock:
                for _ in range(_REHEARSALS):
                    made = session.rehearse(calls, forms, request, SPARE_WALL_S)
                    beside_s.append(made.host_s - sum(made.answer.device_ms) / 1e3)
            known[self._reference.digest] = Rehearsed(_REHEARSED_PAUSE_S, median(beside_s))
            if len(known) > MAX_REFERENCES:
                known.popitem(last=False)
        return known[self._reference.digest]

    def _try_hidden_size(self, session: DeviceSession) -> None:
        reference = self._reference
        if not reference.can_be_reduced or reference.full_size is None or reference.has_square_input:
            return
        calls, expected_sets = self._sets.trial(reference.full_size // 2, self._config.trials)
        made = session.run(calls, RoundRequest(), self._config.timeout_s + self._config.compile_timeout_s)
        check_round(made, calls, expected_sets, self._errors)

    def _timed(self, session: DeviceSession) -> tuple[Measured, list[TensorForm]]:
        """Time the candidate; returns that, and the forms of its outputs."""
        config = self._config
        inputs, expected_sets = self._sets.own(2)
        forms = output_forms(expected_sets[0])
        with self._device.lock:
            profiled = self._sets.shared(inputs, forms)
            coverage = self._profiled(session, profiled, expected_sets)
            settling = session.run(profiled, RoundRequest(poison=False), config.timeout_s)
            check_round(settling, profiled, expected_sets, self._errors)
            plan = self._plan(expected_sets[0], coverage)
            drawn: list[list[Any]] = []

            def new_calls(number: int) -> SharedCalls:
                drawn[:] = [self._sets.inputs() for _ in range(plan.calls)]
                return self._sets.shared(drawn, forms)

            def expected_of_drawn() -> Iterator[Expected]:
                return (self._reference.expected(inputs, self._sets.perturbed) for inputs in drawn)

            def check(number: int, made: Round, calls: SharedCalls) -> None:
                check_round(made, calls, expected_of_drawn(), self._errors)
                if made.answer.kernels:
                    check_coverage(coverage_of(made.answer.kernels, self._own_names), self._own_names, config)

            measured = self._device.timer.measure(
                plan,
                self._reference.forward(self._sets.perturbed, config.baseline == "compile"),
                forms,
                new_calls,
                lambda calls, request: session.run(calls, request, config.timeout_s),
                check,
                settling.answer.enqueue_s,
                self._rehearsed,
            )
        self.measured = measured
        least_ns = 0.0 if coverage.uses_side_streams else coverage.computing_ns / len(expected_sets)
        if 1e9 * measured.candidate.median < _PROFILED_SHARE * least_ns:
            message = f"timed calls take {1e6 * measured.candidate.median:.2f} µs, the profiled one ran kernels for {least_ns / 1e3:.2f} µs"
            raise CandidateFailedError(Status.REJECTED, "unlike_profile", message)
        return measured, forms

    def _profiled(self, session: DeviceSession, calls: SharedCalls, expected_sets: list[Expected]) -> Coverage:
        """Look at what runs on the device, and under `mixed` whether the result depends on the candidate's part of it."""
        config = self._config
        made = session.run(calls, RoundRequest(profiled=True, poison=False), config.timeout_s)
        check_round(made, calls, expected_sets, self._errors)
        coverage = coverage_of(made.answer.kernels, self._own_names)
        check_coverage(coverage, self._own_names, config)
        if config.policy != "strict" and self._backend.can_suppress:
            suppressed = session.run(calls, RoundRequest(suppressed=True), config.timeout_s)
            check_dependence(suppressed, calls, expected_sets)
        return coverage

    def _plan(self, expected: Expected, coverage: Coverage) -> TimingPlan:
        config = self._config
        latency_s = ROUND_LATENCY_S
        if self._device.transport.name != IpcTransport.name:
            latency_s += 2 * self._sets.timing_bytes(expected) / _COPY_BYTES_PER_S
        return TimingPlan(
            calls=self._sets.calls_a_round(expected),
            synchronised=coverage.uses_side_streams,
            precision=config.timing_precision,
            rounds=config.timing_rounds,
            wall_s=config.timing_s,
            call_wall_s=config.timeout_s,
            latency_s=latency_s,
            profiled_round=secrets.randbelow(3),
        )

    def _correct(self, measured: Measured, forms: list[TensorForm]) -> Verdict:
        reference = self._reference
        candidate_s, reference_s = measured.candidate.median, measured.reference.median
        best_s = self._device.best_reference_s
        key = (reference.digest, self._config.baseline)
        best = best_s.get(key)
        if best is not None and reference_s > _SLOWED * best:
            message = f"the reference took {1e3 * reference_s:.4f} ms beside this kernel, {1e3 * best:.4f} ms before"
            raise CandidateFailedError(Status.REJECTED, "slowed_reference", message)
        best_s[key] = min(reference_s, best or reference_s)
        read = sum(form.nbytes for form in reference.full_forms if isinstance(form, TensorForm))
        flops = sum(launch.flops for launch in reference.eager_launches)
        least = floor_s(read, sum(form.nbytes for form in forms), flops, self._device.facts.rates)
        if candidate_s < least:
            message = f"{1e6 * candidate_s:.2f} µs is less than the {1e6 * least:.2f} µs that the device needs at best"
            raise CandidateFailedError(Status.REJECTED, "below_roofline", message)
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
