"""Grading of one candidate on a GPU, in the judge's worker: `CHECKS`, at the end, has the checks in order.

A wrong kernel is never timed. Timing rounds are those of kernels_eval.gpu.timing.
"""

import math
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels_eval.backends import Backend, backend_named
from kernels_eval.checks import Check, run_checks
from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.profiling import Attribution, attribution_of, kernel_times, least_ns, profile_of
from kernels_eval.gpu.candidate.session import JUDGE_WALL_S, Round, RoundRequest, Session
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.candidate_start import CandidateStart
from kernels_eval.gpu.device.gate import QUEUE
from kernels_eval.gpu.device.memory_rates import floor_s
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.renewed_weights import call_with_renewed_weights, trained_reference
from kernels_eval.gpu.round_checks import (
    LargestErrors,
    believed_s,
    check_attribution,
    check_dependence,
    check_floor,
    check_folder,
    check_profiled_time,
    check_reference_time,
    check_round,
    check_same_kernels,
    check_streams,
    check_waited_for,
    is_slowed,
)
from kernels_eval.gpu.timed_rounds import TimedRounds
from kernels_eval.gpu.timing.phases import Phase
from kernels_eval.gpu.timing.statistics import beside_candidate, overlapped_s, sol_score
from kernels_eval.gpu.timing.timer import MIN_ROUNDS, Measured, Overheads, Timer, TimingPlan, UnreliableTimingError
from kernels_eval.gpu.worker_state import Quiet, WorkerState
from kernels_eval.inspection.efficiency import measured_efficiency
from kernels_eval.inspection.issues import issues_of_profile
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import StateAnswer
from kernels_eval.verdict import KernelTime, Resources, Status, TimingSource, Verdict

_SETS_SHARE = 0.4
"""Share of a worker's device memory for the sets of one round; the rest is for the models and their oracles."""
_PROFILED_CALLS = 2


class CandidateRun:
    """Grades one candidate: `verdict` is called once."""

    def __init__(
        self,
        state: WorkerState,
        reference: GpuReference,
        config: JudgeConfig,
        seed: SecretSeed,
        job: dict[str, Any],
        is_repeated: bool,
    ) -> None:
        """`job`: as kernels_eval.gpu.candidate_start has it; `is_repeated`: a measurement of this candidate has failed
        before."""
        self._state = state
        self._reference = reference
        self._config = config
        self._job = job
        self._is_repeated = is_repeated
        self._backend: Backend = backend_named(config.backend)
        self._own_names = self._backend.own_kernels(job["source"])
        self._errors = LargestErrors()
        self._resources: tuple[Resources, ...] = tuple(Resources(**used) for used in job["build"].get("resources", []))
        budget = int(_SETS_SHARE * state.memory_bytes)
        self._sets = CallSets(reference, seed, state.transport, budget, state.lock.give_way)
        self._seed = seed
        self._start = CandidateStart(state, reference, self._sets, job, config.baseline, is_repeated)
        self._unjoined_s = 0.0
        self.measured: Measured | None = None
        self._is_compiled = self._backend.builds
        self._kernels_s = self._longest_s = math.inf
        """Least time of a call's kernels, and of its longest one, in the profiles so far."""
        self._early_s = 0.0
        """Time of a call's work that began before the gate opened."""
        self._session: Session
        self._overheads: Overheads
        self._quiet: Quiet
        """Times without a candidate on the device."""
        self._held: StateAnswer
        """Forms of the tensors that the candidate's model has."""
        self._profiled: Attribution
        self._profiled_calls: int
        self._kernels: tuple[KernelTime, ...] = ()
        self._form: Expected
        """The reference's results, without their values."""
        self._times: Measured

    def verdict(self) -> Verdict:
        """Run the checks, and return the verdict on the candidate with its times."""
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + JUDGE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb, folder=self._job["scratch"])
        try:
            self._start.reserve()
            with self._start.session(limits) as self._session, self._noting_full_memory():
                run_checks(CHECKS, self)
                return self._correct()
        except CandidateFailedError as failed:
            return failed.verdict(self._is_compiled, self._resources)

    def is_blamed(self, error: UnreliableTimingError) -> bool:
        """True if a measurement failed because of the candidate, whose process must have ended.

        A reference that is as slow without it is not its fault.
        """
        if error.reference_s is None:
            return True
        return is_slowed(error.reference_s, self._start.quiet().call)

    @contextmanager
    def _noting_full_memory(self) -> Generator[None]:
        """Note how much of the device is free, while the candidate's process is there, if memory does not suffice."""
        self._state.free_at_fault = None
        try:
            yield
        except torch.cuda.OutOfMemoryError:
            self._state.free_at_fault = self._state.free_bytes()
            raise

    def check_loads(self) -> None:
        """Load the candidate's source, after the reference was timed without it."""
        self._overheads, self._quiet, self._held = self._start.load(self._session, self._config.trials)
        self._is_compiled = True

    def check_trials(self) -> None:
        """Compare trials at the full size with the reference, and where that does not settle it with the oracle.

        The first input set comes twice, to check a second call on it, and with the oracle.
        """
        self._try(None, resources=True)

    def check_hidden_size(self) -> None:
        """Compare trials at another leading size, if the problem has one and the host code does not refuse it.

        It may rely on how the sizes of inputs go together. The process ends with what it raises, so this comes last.
        """
        reference = self._reference
        if not reference.can_be_reduced or reference.full_size is None or reference.has_square_input:
            return
        try:
            self._try(reference.full_size // 2)
        except CandidateFailedError as failed:
            if failed.category is not ErrorCategory.EXCEPTION:
                raise

    def check_renewed_weights(self) -> None:
        """Compare a call after the weights have changed in place, if the problem has trainable parameters."""

        def call() -> None:
            with self._state.lock.shared():
                drawn = self._sets.finite(1)
            if drawn is not None:
                self._round(*drawn, RoundRequest())

        trained = trained_reference(self._reference, self._seed, self._state.lock.shared)
        if trained is not None:
            give = partial(self._start.give, self._session, self._held)
            call_with_renewed_weights(self._reference, trained, self._held, give, self._sets.using, call)

    def _try(self, size: int | None, resources: bool = False) -> None:
        """Check the candidate on trials at a leading size (None: the full size)."""
        trials = self._sets.trials(size, self._config.trials)
        request = RoundRequest(resources=resources, tells=True)
        phase = Phase.COMPILE if size is None else Phase.TRIALS
        while True:
            with self._state.lock.shared():
                drawn = next(trials, None)
            if drawn is None:
                return
            calls, expected_sets = drawn
            with self._state.phases.during(phase):
                made = self._round(calls, expected_sets, request, self._config.compile_timeout_s)
            if resources:
                self._resources = self._resources or made.answer.resources
            phase = Phase.TRIALS
            del drawn, calls, expected_sets, made  # the next sets need their memory

    def _round(
        self,
        calls: SharedCalls,
        expected: Iterable[Expected],
        request: RoundRequest,
        extra_s: float = 0,
        order: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Round:
        """Have a round made within the candidate's time limit plus `extra_s`, and check it.

        `order`: in which the device is shared with other workers meanwhile.
        """
        with order():
            timeout_s = self._config.timeout_s
            made = self._session.run(calls, request, timeout_s + extra_s, launched_s=timeout_s)
        check_folder(Path(self._job["scratch"]))
        with self._state.lock.shared():
            check_round(
                made,
                calls,
                self._giving_way(expected),
                self._errors,
                lambda call, found: self._sets.with_oracle(calls.sets[call], found),
            )
        self._unjoined_s = max(self._unjoined_s, made.answer.unjoined_s)
        return made

    def _giving_way(self, expected: Iterable[Expected]) -> Iterator[Expected]:
        for one in expected:
            self._state.lock.give_way()
            yield one

    def check_profile(self) -> None:
        """Check which kernels run on the device, and under `mixed` that the result depends on the candidate's."""
        with self._state.phases.during(Phase.PROFILE):
            self._profile()

    def _profile(self) -> None:
        lock = self._state.lock
        with lock.shared():
            calls, expected_sets = self._sets.own(_PROFILED_CALLS)
        made, profiled = self._recorded(calls, expected_sets)
        if not profiled.own_ns or profiled.own_share < self._config.min_own_time:
            made, profiled = self._recorded(calls, expected_sets)  # CUPTI loses records on a busy machine
        self._profiled = profiled
        self._check_attribution(profiled)
        if self._config.policy != "strict" and self._backend.can_suppress:
            suppressed = self._session.run(calls, RoundRequest(suppressed=True), self._config.timeout_s)
            with lock.shared():
                pairs = zip(calls.sets, expected_sets, strict=True)
                check_dependence(suppressed, calls, [self._sets.with_oracle(*pair) for pair in pairs])
        self._kernels = kernel_times(made.answer.kernels, calls.count, self._own_names)
        native = [value.to("meta") for value in expected_sets[0].native]
        self._form = replace(expected_sets[0], native=native, oracle=native)
        self._profiled_calls = calls.count
        self._note_times(made, profiled, calls.count)

    def _recorded(self, calls: SharedCalls, expected_sets: list[Expected]) -> tuple[Round, Attribution]:
        request = RoundRequest(profiled=True, poison=False)
        made = self._round(calls, expected_sets, request, order=self._state.lock.alone)
        return made, attribution_of(made.answer.kernels, self._own_names)

    def _note_times(self, made: Round, profiled: Attribution, calls: int) -> None:
        self._kernels_s = min(self._kernels_s, least_ns(made.answer.kernels, calls, self._own_names) / 1e9)
        self._longest_s = min(self._longest_s, profiled.longest_ns / 1e9)

    def check_timed_calls(self) -> None:
        """Time the candidate. Every timed call is compared with the reference, and a round is profiled once more."""

        def note_kernels(made: Round, calls: int) -> None:
            again = attribution_of(made.answer.kernels, self._own_names)
            outputs = len(self._form.native)
            check_same_kernels(self._profiled, self._profiled_calls, again, calls, self._is_repeated, outputs)
            self._check_attribution(again)
            self._note_times(made, again, calls)
            self._early_s = again.early_ns / 1e9 / calls

        rounds = TimedRounds(
            session=self._session,
            sets=self._sets,
            reference=self._reference,
            state=self._state,
            config=self._config,
            form=self._form,
            # A stream that waits for the one that is held back takes its share of the device meanwhile.
            can_hold=self._state.can_hold and not self._profiled.uses_side_streams,
            errors=self._errors,
            note_kernels=note_kernels,
        )
        with self._state.phases.during(Phase.ROUNDS):
            self._times = self.measured = Timer(self._plan(), rounds.device()).measure()
        check_folder(Path(self._job["scratch"]))

    def check_waited_for(self) -> None:
        """Compare the time of calls one by one with the longest kernel.

        What they overlap by counts as time, and what they do before the gate opens, on streams that do not wait for it.
        """
        times, uncounted_s = self._times, self._early_s
        candidate_s = times.candidate.seconds
        if times.alone_s is not None and times.told_serial_s is not None:
            overhead = self._overheads.serial if times.is_gated else self._overheads.serial_open
            check_waited_for(times.told_serial_s + overhead.spread_s, self._longest_s, self._is_repeated)
            uncounted_s += self._late_s(candidate_s, times.alone_s, times.reference.seconds, times.is_gated)
        times.candidate = replace(times.candidate, seconds=candidate_s + uncounted_s)

    def _late_s(self, call_s: float, serial_s: float, beside_s: float, gated: bool) -> float:
        """Return by how much a call alone takes longer than one in a round says, by the reference's two times.

        `beside_s`: the reference's in these rounds. Where it has no time alone, `check_profiled_time` sees calls that
        overlap on one stream.
        """
        reference = beside_candidate(self._quiet.call.seconds, self._quiet.serial_s, beside_s)
        several = self._profiled.uses_side_streams
        if reference[1] is None and gated and not several:
            return 0.0
        read_s = self._state.facts.roof_s(self._reference.input_bytes, 0)
        return overlapped_s(call_s, serial_s, *reference, gated, several, read_s)

    def check_profiled_time(self) -> None:
        """Compare the time of a call with that of its kernels in a profile; on several streams kernels run at once."""
        if not self._profiled.uses_side_streams:
            check_profiled_time(self._times.candidate.seconds, self._kernels_s, self._is_repeated)

    def check_reference_time(self) -> None:
        """Compare the reference's time with that without a candidate."""
        check_reference_time(self._times.reference.seconds, self._quiet.call, self._state.is_gated)

    def check_floor(self) -> None:
        """Compare the time of a call with what the device needs for its bytes."""
        reference, rates = self._reference, self._state.facts.rates
        least_s = floor_s(reference.input_bytes, self._sets.output_bytes, rates)
        check_floor(self._times.candidate.seconds, least_s)

    def _check_attribution(self, attribution: Attribution) -> None:
        check_streams(attribution, self._unjoined_s)
        check_attribution(attribution, self._own_names, self._config, self._is_repeated)

    def _plan(self) -> TimingPlan:
        config, launches = self._config, -(-self._profiled.launches // self._profiled_calls)
        return TimingPlan(
            most_calls=self._sets.most_calls,
            set_bytes=self._sets.set_bytes,
            cache_bytes=self._state.facts.rates.cache_bytes,
            launches=launches,
            serial_round=secrets.randbelow(MIN_ROUNDS),
            serial_calls=min(self._sets.serial_calls(self._profiled.uses_side_streams), QUEUE // (launches + 2)),
            late_s=self._late_s,
            sampling_s=self._quiet.sampling_s,
            is_gated=self._state.is_gated,
            overheads=self._overheads,
            precision=config.timing_precision,
            rounds=config.timing_rounds,
            wall_s=config.timing_s,
            profiled_round=secrets.randbelow(MIN_ROUNDS),
        )

    def _correct(self) -> Verdict:
        measured, reference_s = self._times, believed_s(self._times.reference.seconds, self._quiet.call)
        candidate_s = measured.candidate.seconds
        moved = self._reference.input_bytes + self._sets.output_bytes
        matrix_flops, rates = self._reference.matrix_flops, self._state.facts.rates
        profile = profile_of(self._kernels, moved, matrix_flops, rates, candidate_s)
        baseline_s = min(reference_s, measured.second.seconds if measured.second is not None else reference_s)
        roof_s = self._state.facts.roof_s(self._reference.needed_bytes, matrix_flops)
        return Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=reference_s / candidate_s,
            candidate_ms=1e3 * candidate_s,
            reference_ms=1e3 * reference_s,
            second_reference_ms=None if measured.second is None else 1e3 * measured.second.seconds,
            sol_score=sol_score(candidate_s, baseline_s, roof_s),
            timing_source=TimingSource.GPU,
            max_abs_error=self._errors.absolute,
            max_rel_error=self._errors.relative,
            resources=self._resources,
            profile=profile,
            efficiency=measured_efficiency(profile, self._resources),
            issues=issues_of_profile(profile, self._resources, 1e6 * candidate_s),
        )


CHECKS: tuple[Check[CandidateRun], ...] = (
    Check("loads", CandidateRun.check_loads),
    Check("agrees with the oracle on every trial at the full size", CandidateRun.check_trials),
    Check(
        "computes in its own kernels, by the profile; its result needs them (policy `mixed`)",
        CandidateRun.check_profile,
    ),
    Check("agrees in every timed call, and launches the same kernels", CandidateRun.check_timed_calls),
    Check("takes as long as its longest kernel when it is called alone", CandidateRun.check_waited_for),
    Check("takes as long as its kernels do in the profile", CandidateRun.check_profiled_time),
    Check("leaves the reference's time as it was", CandidateRun.check_reference_time),
    Check("takes no less than the device needs", CandidateRun.check_floor),
    Check("agrees after its weights have changed in place", CandidateRun.check_renewed_weights),
    Check("agrees at another leading size", CandidateRun.check_hidden_size),
)
"""In this order."""
