"""CPU worker: grades one candidate by tracing and running it on several trials, and returns the verdict.

Order: load, set weights, then the trials one after the other, with an early exit at the first wrong answer. The oracle
runs while the candidate works on a trial. Reduced leading sizes alternate between trials: the correctness runs then
also cover a second shape and measure how traffic grows with the size.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.cost.extrapolation import extrapolate, with_full_grids
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import total_s
from kernels_eval.cpu.device_limits import limit_failure
from kernels_eval.cpu.full_size import FullSize, SeenProgram
from kernels_eval.cpu.largest_size import SeenRun, growth, largest_size, tensor_bytes
from kernels_eval.cpu.output_checks import check_dependence
from kernels_eval.cpu.repeated_calls import RepeatedCalls
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.size_schedule import Sizes, first_sizes, follow_up, is_library, larger_sizes, size_of
from kernels_eval.cpu.trials import Errors, Traced, bytes_of, finish, sensible, start
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.trace.schema import KernelSource
from kernels_eval.verdict import Status, TimingSource, Verdict

_MAX_REFERENCES = 128
_MIN_KERNEL_TIME = 0.3
_FULL_SIZE_TRIAL = 2001
"""Trial number of the run at the full size."""


@dataclass
class Graded:
    """Verdict, and the launches at the full size (the kernels to compile)."""

    verdict: Verdict
    launches: list[Launch] = field(default_factory=list)
    kernels: list[KernelSource] = field(default_factory=list)
    """Sources of the kernels launched."""
    follow_up: Sizes | None = None
    """Sizes to judge again at, because programs did not grow with the rows as expected, or None."""
    needs_follow_up: bool = True
    """True if the verdict cannot be trusted without `follow_up`; False if only its times are less exact."""
    executed_size: int | None = None
    """Largest leading size that kernels were run at."""
    seen: SeenRun | None = None
    """Trial to estimate the time of larger ones from; None if the full size was run."""


class Grader:
    """Holds the references of one worker, and grades candidates in processes that its fork servers start."""

    def __init__(self, tracing_server: ForkServer, interpreter_server: ForkServer, is_public: bool = False) -> None:
        """`is_public`: draw from the problem and the kernel, not secretly. Such verdicts are for messages only."""
        self._tracing_server = tracing_server
        self._interpreter_server = interpreter_server
        self._references: OrderedDict[str, Reference] = OrderedDict()
        self._weight_seed = 0 if is_public else secrets.randbits(48)
        self._is_public = is_public

    @property
    def sandbox(self) -> list[str]:
        """Names of the protections that confine candidates."""
        return self._tracing_server.sandbox

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig) -> Graded:
        """Grade one candidate. Raises ReferenceFailedError if the problem itself is at fault."""
        reference = self._reference(problem_source)
        known = hashlib.sha256(f"{problem_source}\0{kernel_source}".encode("utf-8", "surrogatepass")).digest()
        seed = SecretSeed(known if self._is_public else secrets.token_bytes(16))
        sizes = first_sizes(reference)
        try:
            graded = self._grade_at(reference, kernel_source, config, seed, sizes)
        except ReferenceFailedError:
            if not sizes:
                raise
            reference.can_be_reduced, sizes = False, ()  # e.g. an index that is out of range at a reduced size
            graded = self._grade_at(reference, kernel_source, config, seed, sizes)
        while (larger := larger_sizes(reference, sizes, graded.verdict.error_category, graded.follow_up)) is not None:
            sizes, smaller = larger, graded
            graded = self._grade_at(reference, kernel_source, config, seed, sizes)
            if graded.verdict.status is Status.TIMEOUT and smaller.verdict.correct and not smaller.needs_follow_up:
                graded = smaller
                break
        if graded.verdict.correct and graded.seen is not None and _is_chosen(seed, config.full_size_share):
            graded = self._run_larger(reference, kernel_source, config, seed, graded, graded.seen)
        facts = {
            "executed_size": graded.executed_size or reference.full_size,
            "full_size": reference.full_size,
            "hardware": f"triton-interpreter/{config.roofline_hardware}",
            "sandbox": ",".join(self.sandbox),
            "seed_commitment": seed.commitment,
        }
        graded.verdict = graded.verdict.model_copy(update=facts)
        return graded

    def _run_larger(
        self,
        reference: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        graded: Graded,
        seen: SeenRun,
    ) -> Graded:
        """Run a correct kernel once at the full size, or at the largest that the budget allows."""
        full_size = reference.full_size or seen.size
        size = largest_size(seen, full_size, config.full_size_s, config.memory_mb)
        if size is None:
            return graded
        strict = config.policy == "strict"
        limits = Limits(wall_s=config.full_size_limit_s, memory_mb=config.memory_mb)
        at = None if size == full_size else size
        order = seed.number("order", "full size")
        try:
            drawn = reference.draw(at, _FULL_SIZE_TRIAL, seed, own=False)
            inputs, expected = reference.with_expected(drawn, at, _FULL_SIZE_TRIAL, seed)
            with Session(self._tracing_server, self._interpreter_server, limits, strict, order) as session:
                session.load(kernel_source, reference.arguments, reference.weight_seed)
                session.set_weights(reference.weights_for(session.ready(), inputs))
                session.ask(inputs, has_values=True)
                finish(session, start(session, inputs).trace, expected, strict, Errors())
        except ReferenceFailedError:
            return graded
        except CandidateFailedError as failed:
            return graded if failed.category == "out_of_memory" else Graded(failed.verdict(True), executed_size=size)
        graded.executed_size = size
        return graded

    def _reference(self, source: str) -> Reference:
        reference = self._references.pop(source, None) or Reference(source, self._weight_seed)
        self._references[source] = reference
        if len(self._references) > _MAX_REFERENCES:
            self._references.popitem(last=False)
        return reference

    def _grade_at(
        self,
        reference: Reference,
        kernel_source: str,
        config: JudgeConfig,
        seed: SecretSeed,
        sizes: Sizes,
    ) -> Graded:
        limits = Limits(wall_s=config.timeout_s, memory_mb=config.memory_mb)
        trials = max(config.trials, 2) if sizes else 1 if reference.can_be_reduced else config.trials
        strict = config.policy == "strict"
        counted: dict[int | None, list[Launch]] = {}
        errors = Errors()
        compiled = False
        try:
            order = seed.number("order")
            with Session(self._tracing_server, self._interpreter_server, limits, strict, order) as session:
                session.load(kernel_source, reference.arguments, reference.weight_seed)
                first = 0 if trials > 1 else 1  # a single trial is not drawn from the problem's own distribution
                numbers = range(first, first + trials)
                drawn = [reference.draw(size_of(sizes, number), number, seed, own=number == 0) for number in numbers]
                state = session.ready()
                compiled = True
                session.set_weights(reference.weights_for(state, drawn[0]))
                for inputs in drawn:
                    session.ask(inputs, has_values=True)
                repeats = RepeatedCalls(session, reference, size_of(sizes, 0), seed)
                repeats.ask()
                if sizes:
                    session.ask(reference.full_forms, has_values=False)
                programs: list[Traced] = []
                coming = iter(
                    reference.with_expected(values, size_of(sizes, number), number, seed)
                    for number, values in zip(numbers, drawn, strict=True)
                )
                following = next(coming)
                spent: list[tuple[float, float]] = []
                while following is not None:
                    inputs, expected = following
                    traced = start(session, inputs)
                    began = time.process_time()
                    following = next(coming, None)  # the reference runs while the candidate's kernels do
                    reference_s = time.process_time() - began
                    launches = finish(session, traced.trace, expected, strict, errors)
                    spent.append((session.cpu_s, reference_s))
                    counted.setdefault(size_of(sizes, len(programs)), launches)
                    programs.append(traced)
                for call in sensible(lambda: repeats.reruns(programs[0].fingerprint, programs[0].trace)):
                    rerun = repeats.start(call)
                    finish(session, rerun.trace, rerun.expected, strict, errors)
                if not strict and (scrambled := repeats.start_scrambled()) is not None:
                    answer, content = session.executed(bytes_of(scrambled.expected))
                    check_dependence(scrambled.trace, answer, content, scrambled.expected)
                true: FullSize | None = None
                ahead: Sizes | None = None
                if sizes:
                    both = [SeenProgram(program.trace, size) for program, size in zip(programs, sizes, strict=False)]
                    true = sensible(lambda: FullSize(session, reference, *both))
                    ahead = sensible(lambda: true.other_sizes(seed))
                kernels = session.kernels
                if session.has_read:
                    for call in repeats.with_values():
                        finish(session, call.trace, call.expected, strict, errors)
        except CandidateFailedError as failed:
            return Graded(failed.verdict(compiled))
        if true is None or not sizes:
            failed = limit_failure(counted[None], config.targets)
            return Graded(failed) if failed else self._timed(reference, counted[None], kernels, config, errors)
        if true.trace is None:
            return Graded(Verdict(status=Status.CORRECT), follow_up=())
        small, large = counted[sizes[0]], counted[sizes[1]]
        full_size = reference.full_size or sizes[1]
        estimated = extrapolate(small, large, *sizes, full_size, true.launches, true.given_bytes)
        launches = with_full_grids(estimated, true.launches)
        failed = limit_failure(true.launches, config.targets, list(zip(small, large, estimated, strict=False)))
        if failed is not None:
            return Graded(failed)
        graded = self._timed(reference, launches, kernels, config, errors)
        graded.executed_size = sizes[1]
        bytes_needed = tensor_bytes(true.trace, reference.full_forms)
        seconds = spent[1][0] + spent[0][1]  # the candidate and the reference at the larger size
        graded.seen = SeenRun(sizes[1], seconds, growth(small, large, sizes[1] / sizes[0]), bytes_needed)
        graded.follow_up = ahead
        if ahead is None:
            graded.follow_up, graded.needs_follow_up = follow_up(
                large, estimated, launches, sizes, full_size, reference.has_products
            )
        return graded

    def _timed(
        self,
        reference: Reference,
        launches: list[Launch],
        kernels: list[KernelSource],
        config: JudgeConfig,
        errors: Errors,
    ) -> Graded:
        hardware = HARDWARE[config.roofline_hardware]
        candidate_s = total_s(launches, hardware)
        reference_s = total_s(reference.eager_launches, hardware)
        own = [item for item in launches if not is_library(item) and not item.is_copy]
        own_s = total_s(own, hardware)
        if own_s < _MIN_KERNEL_TIME * candidate_s and config.policy == "mixed":
            failed = CandidateFailedError(
                Status.REJECTED, "library_compute", f"own kernels take {own_s / candidate_s:.0%} of the time"
            )
            return Graded(failed.verdict(compiled=True))
        verdict = Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=reference_s / candidate_s,
            candidate_ms=1e3 * candidate_s,
            reference_ms=1e3 * reference_s,
            timing_source=TimingSource.ROOFLINE,
            max_abs_error=errors.absolute,
            max_rel_error=errors.relative,
        )
        return Graded(verdict, launches, kernels)


def _is_chosen(seed: SecretSeed, share: float) -> bool:
    """Draw from the secret seed if a kernel is run at the full size."""
    return seed.number("full size") < share * (1 << 63)
