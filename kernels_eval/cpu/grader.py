"""CPU worker: grades one candidate by tracing and running it on several trials, and returns the verdict.

`kernels_eval.cpu.checks` lists what a candidate has to pass, in order. This module chooses the sizes and the
configurations of autotuned kernels at which it does, and times what passed.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Sequence

from kernels_eval.checks import run_checks
from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.checks import CHECKS, Trials
from kernels_eval.cpu.configurations import ConfigurationRuns
from kernels_eval.cpu.full_size import uploads
from kernels_eval.cpu.graded import Graded, timed
from kernels_eval.cpu.larger_cut import is_beyond, is_larger_cut, larger_cut, relies_on_equal_sizes, with_a_cut
from kernels_eval.cpu.largest_size import SeenRun, fitting_sizes, growth, largest_size, tensor_bytes
from kernels_eval.cpu.loop_turns import tells_turns
from kernels_eval.cpu.own_sizes import (
    MAY_GO_BY_SIZE,
    names_a_size,
    other_program,
    own_launches,
    sizes_in_words,
    with_own_launches,
)
from kernels_eval.cpu.recount import STEEP, recount
from kernels_eval.cpu.reliance import with_cause
from kernels_eval.cpu.renewed_weights import run_with_renewed_weights
from kernels_eval.cpu.row_loops import may_read_rows_again
from kernels_eval.cpu.session import Configurations, Session
from kernels_eval.cpu.size_schedule import Sizes, first_sizes, follow_up, larger_sizes, size_of
from kernels_eval.cpu.trials import Errors, finish, sensible, start
from kernels_eval.cpu.ways import Way, autotuners, fastest, ranked, ways_of
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.inspection.figures import Work
from kernels_eval.reference.cutting import CallWork
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.loading import load_within_limits
from kernels_eval.reference.reference import Reference
from kernels_eval.reference.settings import set_settings
from kernels_eval.sandbox.calibration import slowness
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.trace.schema import TraceAnswer
from kernels_eval.verdict import Status, Verdict

_MAX_REFERENCES = 128
_MOST_COMPILED = 8
"""Configurations of autotuned kernels that are compiled beside the fastest one; those that follow it."""
_BEFORE_COMPILING = 0.8
"""The estimate here knows nothing of registers: with them, a kernel may turn out this much faster."""
_USUAL_OPERATORS, _OPERATOR_S = 100, 0.03
"""Operators of a reference from which on each adds to the time limit, and the seconds: of some twenty traced calls."""
_FULL_SIZE_TRIAL = 2001
"""Trial number of the run at the full size."""


class Grader:
    """Holds the references of one worker, and grades candidates in processes that its fork servers start."""

    def __init__(
        self, tracing_server: ForkServer, interpreter_server: ForkServer, secret: "Grader | None" = None
    ) -> None:
        """`secret`: one whose verdicts this one explains, and draws for from problem and kernel, for messages only."""
        self._tracing_server = tracing_server
        self._interpreter_server = interpreter_server
        self._references: OrderedDict[str, Reference] = OrderedDict()
        self._weight_seed = secrets.randbits(48) if secret is None else 0
        self._secret = secret

    @property
    def sandbox(self) -> list[str]:
        """Names of the protections that confine candidates."""
        return self._tracing_server.sandbox

    def has_loaded(self, problem_source: str) -> bool:
        """Return True if a problem's reference is held."""
        return problem_source in self._references

    def load(self, problem_source: str, config: JudgeConfig) -> None:
        """Load a problem within limits. Raises ReferenceFailedError if it fails, or takes too long or too much."""
        load_within_limits(lambda: self._reference(problem_source), config)

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig) -> Graded:
        """Grade one candidate. Raises ReferenceFailedError if the problem itself is at fault."""
        whole = self._reference(problem_source)
        reference = whole.cut or whole
        self._refuse_if_too_large(whole, config)
        known = hashlib.sha256(f"{problem_source}\0{kernel_source}".encode("utf-8", "surrogatepass")).digest()
        seed = SecretSeed(secrets.token_bytes(16) if self._secret is None else known)
        graded = self._grade_in(reference, kernel_source, config, seed, {})
        may_go = graded.verdict.error_category in MAY_GO_BY_SIZE and is_beyond(whole, config)
        if may_go and (with_cut := with_a_cut(whole)) is not None:
            whole, reference = with_cut, with_cut.cut or with_cut
            graded = self._grade_in(reference, kernel_source, config, seed, {})
        chosen: Configurations = {}
        ways = ways_of(autotuners(graded.full_trace), kernel_source)
        if graded.verdict.correct and len(ways) > 1:
            graded, chosen = self._tune(reference, kernel_source, config, seed, graded, ways)
        if whole.cut is not None:
            graded, reference = self._at_own_sizes(whole, kernel_source, config, seed, graded, chosen)
        if graded.verdict.correct and _is_run_larger(graded, seed, config):
            larger = _largest(whole, reference, graded, config)
            if larger is not None:
                graded, reference = self._run_larger(*larger, kernel_source, config, seed, graded, chosen, reference)
        is_cut = reference is not whole
        facts = {
            "executed_size": graded.executed_size or reference.full_size,
            "full_size": whole.full_size,
            "judged_at": sizes_in_words(whole, reference, graded.executed_size) if is_cut else None,
            "hardware": f"triton-interpreter/{config.roofline_hardware}",
            "sandbox": ",".join(self.sandbox),
            "seed_commitment": seed.commitment,
            "warnings": graded.warnings if graded.verdict.correct else (),
        }
        graded.verdict = graded.verdict.model_copy(update=facts)
        graded.work = Work(bytes=whole.needed_bytes, matrix_flops=whole.matrix_flops)
        return graded

    def _grade_in(
        self,
        reference: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        configurations: Configurations,
    ) -> Graded:
        """Grade in given configurations of autotuned kernels, at the sizes that the candidate needs."""
        sizes = first_sizes(reference)
        try:
            graded = self._grade_at(reference, kernel_source, config, seed, sizes, configurations)
        except ReferenceFailedError:
            if not sizes:
                raise
            reference.can_be_reduced, sizes = False, ()  # e.g. an index that is out of range at a reduced size
            graded = self._grade_at(reference, kernel_source, config, seed, sizes, configurations)
        while (larger := larger_sizes(reference, sizes, graded.verdict, graded.follow_up)) is not None:
            if not larger and not graded.verdict.correct and is_beyond(reference, config):
                break
            if not larger and graded.verdict.correct:
                fitting = fitting_sizes(sizes, graded.seen, reference.full_size, config.full_size_s, config.memory_mb)
                if fitting == sizes and graded.tells_turns:
                    break
                larger = () if fitting == sizes else fitting
            sizes, smaller = larger, graded
            graded = self._grade_at(reference, kernel_source, config, seed, sizes, configurations)
            graded.is_drawn |= smaller.is_drawn
            graded.is_certain &= smaller.is_certain  # why it came here may have been drawn
            if graded.is_ended and smaller.verdict.correct and not smaller.needs_follow_up:
                return smaller
        return graded

    def _tune(
        self,
        reference: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        graded: Graded,
        combinations: Sequence[Configurations],
    ) -> tuple[Graded, Configurations]:
        """Run a correct candidate in the other configurations of its kernels; grade it again in the fastest."""
        limits = _limits(config, reference)
        order = seed.number("order", "configurations")
        hardware = HARDWARE[config.roofline_hardware]
        ways = [Way(dict(each)) for each in combinations]
        runs = ConfigurationRuns(reference, seed, config, graded.seen)
        try:
            sensible(lambda: runs.all(lambda: self._session(config, limits, order), kernel_source, ways, graded))
            chosen = sensible(lambda: fastest(ways, hardware))
        except CandidateFailedError as failed:
            return Graded(failed.verdict(True), executed_size=graded.executed_size), {}
        if chosen != ways[0].configurations:
            graded = self._grade_in(reference, kernel_source, config, seed, chosen)
        others = [way.launches for way in ranked(ways, hardware) if way.configurations != chosen]
        graded.alternatives = others[:_MOST_COMPILED]
        graded.alternative_kernels = runs.kernels
        return graded, chosen

    def _at_own_sizes(
        self,
        whole: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        graded: Graded,
        configurations: Configurations,
    ) -> tuple[Graded, Reference]:
        """Time a kernel that is correct on the cut problem at the problem's own sizes; returns what it was judged on.

        One whose program differs there is judged there, as is one that failed and may go by a size that was cut.
        """
        assert whole.cut is not None
        verdict, cut = graded.verdict, whole.cut
        if verdict.correct:
            limits = _limits(config, whole)
            order = seed.number("order", "own sizes")
            try:
                with self._session(config, limits, order, configurations) as session:
                    own = sensible(lambda: own_launches(session, kernel_source, whole, graded))
            except CandidateFailedError as failed:
                return Graded(failed.verdict(True), is_drawn=False), whole
            if own is not None:
                return with_own_launches(graded, own, whole, config), cut
        elif verdict.error_category not in MAY_GO_BY_SIZE or not names_a_size(kernel_source, whole):
            return graded, cut
        if whole.work.is_too_large(config.timeout_s):
            return (Graded(other_program()) if verdict.correct else graded), cut
        again = self._grade_in(whole, kernel_source, config, seed, configurations)
        return (graded, cut) if again.is_ended and not verdict.correct else (again, whole)

    def _refuse_if_too_large(self, whole: Reference, config: JudgeConfig) -> None:
        """Raise ReferenceFailedError if kernels cannot be interpreted at the smallest sizes that the problem allows."""
        least = whole.cut or whole
        if least.work.is_too_large(config.timeout_s):
            sizes = sizes_in_words(whole, least, None)
            raise ReferenceFailedError(
                f"one call needs {least.work.in_words} at the smallest sizes that the problem's constants allow "
                f"({sizes}); {config.timeout_s:g} s of timeout_s allow {CallWork.most(config.timeout_s).in_words}"
            )

    def _run_larger(
        self,
        reference: Reference,
        size: int | None,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        graded: Graded,
        configurations: Configurations,
        before: Reference,
    ) -> tuple[Graded, Reference]:
        """Run a correct kernel once at a larger size (None: the full one); returns what it was judged on.

        `before`: what it was judged on at the smaller ones. If that was the cut problem, limits are no fault of it.
        """
        strict = config.policy == "strict"
        limits = Limits(wall_s=config.full_size_limit_s * slowness(), memory_mb=config.memory_mb)
        order = seed.number("order", "full size")
        try:
            drawn = reference.draw(size, _FULL_SIZE_TRIAL, seed, own=False)
            inputs, expected = reference.with_expected(drawn, size, _FULL_SIZE_TRIAL, seed)
            with self._session(config, limits, order, configurations) as session:
                session.load(kernel_source, reference.arguments, reference.weight_seed, reference.nesting)
                state = session.ready()
                weights = reference.weights_for(state, lambda: inputs)
                session.set_weights(weights)
                session.ask(inputs, has_values=True)
                launches = finish(session, start(session, inputs).trace, expected, strict, Errors())
        except ReferenceFailedError:
            return graded, before
        except CandidateFailedError as failed:
            is_full = failed.category == ErrorCategory.OUT_OF_MEMORY
            if is_full or (reference is not before and failed.status is Status.TIMEOUT):
                return graded, before
            return Graded(failed.verdict(True), executed_size=size or reference.full_size), reference
        graded.executed_size = at = size or reference.full_size
        if at is not None and (reference is before or size is None) and not is_larger_cut(reference):
            recount(graded, launches, at, reference.full_size or at, config)
        return graded, reference

    def _reference(self, source: str) -> Reference:
        self._references[source] = reference = self._references.pop(source, None) or self._new_reference(source)
        set_settings(reference.settings)
        if len(self._references) > _MAX_REFERENCES:
            self._references.popitem(last=False)
        return reference

    def _new_reference(self, source: str) -> Reference:
        known = None if self._secret is None else self._secret._references.get(source)
        return Reference(source, self._weight_seed, True) if known is None else known.with_weights(self._weight_seed)

    def _session(
        self, config: JudgeConfig, limits: Limits, order: int, configurations: Configurations | None = None
    ) -> Session:
        servers, strict = (self._tracing_server, self._interpreter_server), config.policy == "strict"
        return Session(*servers, limits, strict, order, configurations, config.is_portable, config.dot_precision)

    def _grade_at(
        self,
        reference: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        sizes: Sizes,
        configurations: Configurations,
    ) -> Graded:
        limits = _limits(config, reference)
        order = seed.number("order")
        session = self._session(config, limits, order, configurations)
        trials = Trials(session, reference, kernel_source, config, seed, sizes)
        try:
            with session:
                run_checks(CHECKS, trials)
            if trials.repeats.keeps_state:
                with self._session(config, limits, order, configurations) as again:
                    run_with_renewed_weights(again, kernel_source, reference, size_of(sizes, 0), seed)
        except CandidateFailedError as failed:
            return _refused(trials, failed)
        if trials.full is None:
            return _timed(trials)
        if trials.full.trace is None:
            return Graded(Verdict(status=Status.CORRECT), follow_up=())
        return _timed_by_estimate(trials, trials.full.trace)


def _limits(config: JudgeConfig, reference: Reference) -> Limits:
    """Return the limits of a candidate's processes. Host code that calls PyTorch as often as a network takes longer."""
    beyond = max(0, len(reference.eager_launches) - _USUAL_OPERATORS)
    return Limits(wall_s=(config.timeout_s + beyond * _OPERATOR_S) * slowness(), memory_mb=config.memory_mb)


def _refused(trials: Trials, failed: CandidateFailedError) -> Graded:
    """Return the verdict on a candidate that failed a check."""
    session = trials.session
    has_numbers = not all(isinstance(form, TensorForm) for form in trials.reference.full_forms)
    is_certain = failed.is_certain and not session.has_read  # host code may go by the value
    verdict = with_cause(session, trials.with_unnamed(failed)).verdict(trials.is_compiled)
    return Graded(verdict, is_drawn=session.has_run or has_numbers, is_certain=is_certain)


def _timed(trials: Trials) -> Graded:
    """Return the verdict on a correct candidate that ran at the full size, with its estimated times."""
    trace, launches = trials.programs[0].trace, trials.launches_at_full_size()
    graded = _with_times(trials, trace, launches)
    graded.counted = launches
    return graded


def _timed_by_estimate(trials: Trials, trace: TraceAnswer) -> Graded:
    """Return the verdict on a correct candidate that ran at smaller sizes, and whether larger ones have to follow."""
    assert trials.sizes
    small, large = (trials.counted[size] for size in trials.sizes)
    reference, launches = trials.reference, trials.launches_at_full_size()
    graded = _with_times(trials, trace, launches)
    graded.counted, graded.executed_size = large, trials.sizes[1]
    seconds = trials.seconds[1][0] + trials.seconds[0][1]  # the candidate and the reference at the larger size
    growths = growth(small, large, trials.sizes[1] / trials.sizes[0])
    graded.seen = SeenRun(trials.sizes[1], seconds, growths, tensor_bytes(trace, reference.full_forms))
    last = trials.programs[min(1, len(trials.programs) - 1)].trace
    graded.is_steep = growths > STEEP or may_read_rows_again(last, trace, trials.session.kernels)
    graded.follow_up = trials.larger
    if trials.larger is None:
        full_size = reference.full_size or trials.sizes[1]
        graded.follow_up, graded.needs_follow_up = follow_up(
            large, trials.estimated, launches, trials.sizes, full_size, reference.has_products
        )
        shares = [launch.busy_share for launch in large if launch.kernel_number >= 0]
        graded.tells_turns = tells_turns(last, trace, trials.session.kernels, shares, full_size / trials.sizes[1])
    return graded


def _with_times(trials: Trials, trace: TraceAnswer, launches: list[Launch]) -> Graded:
    """Return the verdict with the time of `launches`, those of a call at the full size, whose program is `trace`."""
    charged = launches + (uploads(trace) if trials.repeats.uploads else [])
    graded = timed(trials.reference, charged, trials.session.kernels, trials.config, trials.errors)
    graded.full_trace, graded.warnings, graded.has_read = trace, trials.warnings, trials.session.has_read
    return graded


def _largest(
    whole: Reference, reference: Reference, graded: Graded, config: JudgeConfig
) -> tuple[Reference, int | None] | None:
    """Return what to run a correct kernel on once more, and the leading size (None: the full one); None: nothing more.

    `reference`: the problem, or the cut one, that it was judged on.
    """
    if reference is not whole:
        size = whole.largest_size(config.full_size_s, config.memory_mb)
        if size != whole.full_size and relies_on_equal_sizes(whole):
            larger = larger_cut(whole, config.full_size_s, config.memory_mb)
            return None if larger is None else (larger, None)
        return None if size is None else (whole, None if size == whole.full_size else size)
    seen = graded.seen
    if seen is None:
        return None
    full_size = whole.full_size or seen.size
    size = largest_size(seen, full_size, config.full_size_s, config.memory_mb)
    return None if size is None else (whole, None if size == full_size else size)


def _is_run_larger(graded: Graded, seed: SecretSeed, config: JudgeConfig) -> bool:
    """Return whether a correct kernel is run at the full size.

    All fast ones are, and those whose work grows faster than the rows; of others a share, drawn secretly.
    """
    if not config.full_size_share:
        return False
    if graded.is_steep:
        return True
    is_fast = (graded.verdict.speedup or 0.0) >= _BEFORE_COMPILING * config.full_size_speedup
    return is_fast or seed.number("full size") < config.full_size_share * (1 << 63)
