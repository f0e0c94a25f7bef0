"""Grading of one candidate on a GPU, in the judge's worker: load, check, profile, time.

In this order, up to the first failure: trials at the full size (the first input set twice, to check a second call on
the same input too), a trial at another leading size if the problem has one, a profiled round, for policy `mixed` a
round in which the candidate's kernels do nothing, then timing rounds (kernels_eval.gpu.timing). A wrong kernel is never
timed.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernels_eval.backends import Backend, backend_named
from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.profiling import Attribution, attribution_of, kernel_times, profile_of
from kernels_eval.gpu.candidate.session import JUDGE_WALL_S, Round, RoundRequest, Session
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.candidate_start import CandidateStart
from kernels_eval.gpu.device.gate import QUEUE
from kernels_eval.gpu.device.memory_rates import floor_s
from kernels_eval.gpu.reference import GpuReference
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
from kernels_eval.gpu.timing.statistics import overlapped_s, sol_score
from kernels_eval.gpu.timing.timer import MIN_ROUNDS, Measured, Overheads, Timer, TimingPlan, UnreliableTimingError
from kernels_eval.gpu.worker_state import Quiet, WorkerState
from kernels_eval.inspection.issues import issues_of_profile
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.limits import Limits
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
        self._start = CandidateStart(state, reference, self._sets, job, config.baseline, is_repeated)
        self._unjoined_s = 0.0
        self._kernels: tuple[KernelTime, ...] = ()
        self.measured: Measured | None = None

    def verdict(self) -> Verdict:
        """Load, check, profile and time the candidate."""
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + JUDGE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb, folder=self._job["scratch"])
        compiled = self._backend.builds
        start = self._start
        try:
            start.reserve()
            with start.session(limits) as session, self._noting_full_memory():
                overheads, quiet = start.load(session, config.trials)
                compiled = True
                self._try(session, None, resources=True)
                self._try_hidden_size(session)
                with self._state.phases.during(Phase.ROUNDS):
                    measured = self._timed(session, overheads, quiet)
                self._check_bounds(measured, quiet)
                return self._correct(measured, believed_s(measured.reference.seconds, quiet.call))
        except CandidateFailedError as failed:
            return failed.verdict(compiled, self._resources)

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

    def _try(self, session: Session, size: int | None, resources: bool = False) -> None:
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
                made = self._round(session, calls, expected_sets, request, self._config.compile_timeout_s)
            if resources:
                self._resources = self._resources or made.answer.resources
            phase = Phase.TRIALS
            del drawn, calls, expected_sets, made  # the next sets need their memory

    def _round(
        self,
        session: Session,
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
            made = session.run(calls, request, self._config.timeout_s + extra_s, launched_s=self._config.timeout_s)
        check_folder(Path(self._job["scratch"]))
        with self._state.lock.shared():
            check_round(made, calls, self._giving_way(expected), self._errors)
        self._unjoined_s = max(self._unjoined_s, made.answer.unjoined_s)
        return made

    def _giving_way(self, expected: Iterable[Expected]) -> Iterator[Expected]:
        for one in expected:
            self._state.lock.give_way()
            yield one

    def _try_hidden_size(self, session: Session) -> None:
        reference = self._reference
        if reference.can_be_reduced and reference.full_size is not None and not reference.has_square_input:
            self._try(session, reference.full_size // 2)

    def _timed(self, session: Session, overheads: Overheads, quiet: Quiet) -> Measured:
        """Profile and time the candidate."""
        with self._state.phases.during(Phase.PROFILE):
            attribution, form, profiled_calls = self._profiled(session)
        kernels_s = [attribution.computing_ns / 1e9 / profiled_calls]
        longest_s = [attribution.longest_ns / 1e9]

        def note_kernels(made: Round, calls: int) -> None:
            again = self._attribution(made)
            check_same_kernels(attribution, profiled_calls, again, calls)
            kernels_s.append(again.computing_ns / 1e9 / calls)
            longest_s.append(again.longest_ns / 1e9)

        rounds = TimedRounds(
            session=session,
            sets=self._sets,
            reference=self._reference,
            state=self._state,
            config=self._config,
            form=form,
            # A stream that waits for the one that is held back takes its share of the device meanwhile.
            can_hold=self._state.can_hold and not attribution.uses_side_streams,
            errors=self._errors,
            note_kernels=note_kernels,
        )
        plan = self._plan(attribution, overheads, profiled_calls)
        measured = self.measured = Timer(plan, rounds.device()).measure()
        if measured.serial_s is not None:
            check_waited_for(measured.serial_s, min(longest_s))
            if quiet.serial_s is not None:
                candidate_s = measured.candidate.seconds
                late_s = overlapped_s(candidate_s, measured.serial_s, quiet.call.seconds, quiet.serial_s)
                measured.candidate = replace(measured.candidate, seconds=candidate_s + late_s)
        if not attribution.uses_side_streams:  # on several streams kernels run at once
            check_profiled_time(measured.candidate.seconds, min(kernels_s), self._is_repeated)
        return measured

    def _profiled(self, session: Session) -> tuple[Attribution, Expected, int]:
        """Check which kernels run on the device, and under `mixed` that the result depends on the candidate's.

        Returns also the reference's results without their values, and the number of calls profiled.
        """
        lock = self._state.lock
        with lock.shared():
            calls, expected_sets = self._sets.own(_PROFILED_CALLS)
        made = self._round(session, calls, expected_sets, RoundRequest(profiled=True, poison=False), order=lock.alone)
        attribution = self._attribution(made)
        if self._config.policy != "strict" and self._backend.can_suppress:
            suppressed = session.run(calls, RoundRequest(suppressed=True), self._config.timeout_s)
            with lock.shared():
                check_dependence(suppressed, calls, expected_sets)
        self._kernels = kernel_times(made.answer.kernels, calls.count, self._own_names)
        native = [value.to("meta") for value in expected_sets[0].native]
        return attribution, replace(expected_sets[0], native=native, oracle=native), calls.count

    def _attribution(self, made: Round) -> Attribution:
        """Return the attribution of a profiled round, checked."""
        attribution = attribution_of(made.answer.kernels, self._own_names)
        check_streams(attribution, self._unjoined_s)
        check_attribution(attribution, self._own_names, self._config)
        return attribution

    def _plan(self, attribution: Attribution, overheads: Overheads, profiled_calls: int) -> TimingPlan:
        config, launches = self._config, -(-attribution.launches // profiled_calls)
        return TimingPlan(
            most_calls=self._sets.most_calls,
            set_bytes=self._sets.set_bytes,
            cache_bytes=self._state.facts.rates.cache_bytes,
            launches=launches,
            serial_round=secrets.randbelow(MIN_ROUNDS),
            serial_calls=min(self._sets.serial_calls, QUEUE // (launches + 2)),
            is_gated=self._state.is_gated,
            overheads=overheads,
            precision=config.timing_precision,
            rounds=config.timing_rounds,
            wall_s=config.timing_s,
            profiled_round=secrets.randbelow(MIN_ROUNDS),
        )

    def _check_bounds(self, measured: Measured, quiet: Quiet) -> None:
        """Check the reference's time against that without a candidate, the candidate's against the device's rates."""
        check_reference_time(measured.reference.seconds, quiet.call, self._state.is_gated)
        reference, rates = self._reference, self._state.facts.rates
        least_s = floor_s(reference.input_bytes, self._sets.output_bytes, reference.matrix_flops, rates)
        check_floor(measured.candidate.seconds, least_s)

    def _correct(self, measured: Measured, reference_s: float) -> Verdict:
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
            issues=issues_of_profile(profile, self._resources, 1e6 * candidate_s),
        )
