"""CPU worker: the checks that a candidate has to pass at given sizes, in order.

The oracle runs while the candidate works on a trial. Reduced leading sizes alternate between trials: the correctness
runs then also cover a second shape and measure how traffic grows with the size.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from kernels_eval.checks import Check
from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.cost.extrapolation import extrapolate, with_full_grids
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.device_limits import check_limits
from kernels_eval.cpu.full_size import FullSize, SeenProgram
from kernels_eval.cpu.neighbours import run_with_neighbours
from kernels_eval.cpu.output_checks import check_dependence
from kernels_eval.cpu.reliance import relied_upon
from kernels_eval.cpu.repeated_calls import RepeatedCall, RepeatedCalls
from kernels_eval.cpu.session import Session
from kernels_eval.cpu.size_schedule import Sizes, size_of
from kernels_eval.cpu.trials import Errors, Traced, bytes_of, finish, sensible, start
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.trace.schema import TraceAnswer


@dataclass
class Trials:
    """Trials of one candidate: their needs, and the findings of the checks so far."""

    session: Session
    reference: Reference
    kernel_source: str
    config: JudgeConfig
    seed: SecretSeed
    sizes: Sizes
    """Reduced leading sizes of the trials by turns; () for the full size."""
    errors: Errors = field(default_factory=Errors)
    is_compiled: bool = False
    """ModelNew was built."""
    programs: list[Traced] = field(default_factory=list[Traced])
    """Programs of the trials, in order."""
    counted: dict[int | None, list[Launch]] = field(default_factory=dict[int | None, list[Launch]])
    """Launches as counted in the first trial of each leading size (None: the full size), or in a shorter later call."""
    seconds: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """CPU time of each trial: of the candidate's kernels, of the reference."""
    full: FullSize | None = None
    """Programs at the full size, where the trials are smaller."""
    larger: Sizes | None = None
    """Sizes to judge at, because those of the trials are not representative; None: they are."""
    estimated: list[Launch] = field(default_factory=list[Launch])
    """Launches at the full size as the trials let one expect, where the trials are smaller."""
    warnings: tuple[str, ...] = ()
    _drawn: list[list[Any]] = field(default_factory=list[list[Any]])
    _unnamed: list[str] = field(default_factory=list[str])
    """Tensors in plain attributes of the reference for which the candidate has none of that name and shape."""
    _computed: tuple[str, ...] = ()
    """Tensors that the candidate's constructor computed of parameters and buffers."""
    _last: tuple[list[Any], Expected] | None = None
    """Inputs and results of the last trial."""

    def __post_init__(self) -> None:
        self.repeats = RepeatedCalls(self.session, self.reference, size_of(self.sizes, 0), self.seed)

    @property
    def is_strict(self) -> bool:
        """The candidate's own kernels have to compute everything."""
        return self.config.policy == "strict"

    @property
    def numbers(self) -> range:
        """Numbers of the trials. A single one is not drawn from the problem's own distribution, whose number is 0."""
        trials = self.config.trials
        if self.sizes:
            trials = max(trials, 2)
        elif self.reference.can_be_reduced:
            trials = 1
        first = 0 if trials > 1 else 1
        return range(first, first + trials)

    def check_loads(self) -> None:
        """Load the source, set the weights, and request the programs of the trials."""
        session, reference, seed = self.session, self.reference, self.seed
        session.load(self.kernel_source, reference.arguments, reference.weight_seed, reference.nesting)
        self._drawn = [
            reference.draw(size_of(self.sizes, number), number, seed, own=number == 0) for number in self.numbers
        ]
        state = session.ready()
        self.is_compiled = True
        weights = reference.weights_for(state, lambda: self._drawn[0])
        self._computed = state.computed
        self._unnamed = [name for name in reference.plain_state if name not in weights.values]
        session.set_weights(weights)
        for inputs in self._drawn:
            session.ask(inputs, has_values=True)

    def check_trials(self) -> None:
        """Compare each trial with the oracle. The oracle of the next one runs while the candidate's kernels do.

        Once the first one has passed, the programs of the other calls are requested: most that fail, fail there.
        """
        coming = iter(
            self.reference.with_expected(values, size_of(self.sizes, number), number, self.seed)
            for number, values in zip(self.numbers, self._drawn, strict=True)
        )
        following = next(coming, None)
        while following is not None:
            inputs, expected = self._last = following
            traced = start(self.session, inputs)
            began = time.process_time()
            following = next(coming, None)
            reference_s = time.process_time() - began
            launches = self._finish(traced.trace, expected)
            if not self.programs:
                self._ask_for_other_calls()
            self.seconds.append((self.session.cpu_s, reference_s))
            self.counted.setdefault(size_of(self.sizes, len(self.programs)), launches)
            self.programs.append(traced)

    def _ask_for_other_calls(self) -> None:
        """Request the programs of the calls that follow the trials for certain."""
        self.repeats.ask()
        if self.sizes:
            self.session.ask(self.reference.full_forms, has_values=False)

    def check_repeated_calls(self) -> None:
        """Run calls again whose program differs from the one that passed, or whose kernels could keep results."""
        first, size = self.programs[0], size_of(self.sizes, 0)
        for call in sensible(lambda: self.repeats.reruns(first.fingerprint, first.trace)):
            again = self.repeats.start(call)
            launches = self._finish(again.trace, again.expected)
            if len(launches) < len(self.counted[size]):  # the constructor's are part of a model's first call alone
                self.counted[size] = launches

    def check_dependence(self) -> None:
        """Under the policy `mixed`, compare a call whose kernels' values are replaced by random ones."""
        if not self.is_strict and (scrambled := self.repeats.start_scrambled()) is not None:
            self._check_dependence(scrambled)

    def _check_dependence(self, scrambled: RepeatedCall) -> None:
        _, content = self.session.executed(bytes_of(scrambled.expected))
        check_dependence(scrambled.trace, content, scrambled.expected, self.session.inputs)

    def look_at_full_size(self) -> None:
        """Trace the full size, where the trials are smaller, and find out whether they are representative of it."""
        if self.sizes:
            both = [SeenProgram(made.trace, size) for made, size in zip(self.programs, self.sizes, strict=False)]
            full = self.full = sensible(lambda: FullSize(self.session, self.reference, *both))
            self.larger = sensible(lambda: full.other_sizes(self.seed))

    def check_neighbours(self) -> None:
        """Make one more trial at a size at which programs have neighbours, if they had none."""
        if self.full is not None and self.larger is None:
            spent_s = sum(self.seconds[1])
            run_with_neighbours(self.session, self.reference, self.full, self.seed, self.errors, spent_s)

    def check_after_reading(self) -> None:
        """Call host code that reads values again, on inputs that read the same."""
        if self.repeats.needs_values:
            for call in self.repeats.with_values():
                self._finish(call.trace, call.expected)
            if not self.is_strict:
                self._check_dependence(self.repeats.start_scrambled_again())

    def look_at_reliance(self) -> None:
        """Look for what the result relies on and Triton does not promise: a warning. The session's last call."""
        assert self._last is not None
        self.warnings = relied_upon(self.session, *self._last, self.is_strict)

    def check_limits(self) -> None:
        """Compare the launches at the full size, where it could be traced, with what the targets can run."""
        targets = self.config.targets
        if not self.sizes:
            check_limits(self.counted[None], targets)
        elif self.full is not None and self.full.trace is not None:
            small, large = (self.counted[size] for size in self.sizes)
            full_size, exact = self.reference.full_size or self.sizes[1], self.full.launches
            self.estimated = extrapolate(small, large, *self.sizes, full_size, exact, self.full.given_bytes)
            check_limits(exact, targets, list(zip(small, large, self.estimated, strict=False)))

    def with_unnamed(self, failed: CandidateFailedError) -> CandidateFailedError:
        """Return a failure whose message names first states that the reference draws and the candidate calls otherwise.

        It names what the constructor computed of weights as well.

        With another order of draws the candidate's own differ. They are no reason to refuse it before: with the same
        order they are equal, and a kernel may do without them.
        """
        if failed.category != ErrorCategory.WRONG_VALUES:
            return failed
        message = failed.message
        if drawn := self.reference.constructor.drawn(self._unnamed):
            message += (
                f"; the reference draws {', '.join(drawn)} in its constructor: ModelNew gets these values "
                "in an attribute of the same name and shape, and has none"
            )
        as_the_reference = self.reference.constructor.computed if self._computed else ()
        if computed := [name for name in self._computed if name not in as_the_reference]:
            message += (
                f"; the constructor computes {', '.join(computed)} of parameters or buffers, which get their "
                "values after it: compute it in forward"
            )
        return CandidateFailedError(failed.status, failed.category, message, failed.is_certain)

    def launches_at_full_size(self) -> list[Launch]:
        """Return the launches of a call at the full size: counted there, or estimated over its true grids."""
        return with_full_grids(self.estimated, self.full.launches) if self.full is not None else self.counted[None]

    def _finish(self, trace: TraceAnswer, expected: Expected) -> list[Launch]:
        return finish(self.session, trace, expected, self.is_strict, self.errors)


CHECKS: tuple[Check[Trials], ...] = (
    Check("loads, and its ModelNew takes the reference's weights", Trials.check_loads),
    Check("agrees with the oracle on every trial", Trials.check_trials),
    Check("agrees when it is called again, however often before", Trials.check_repeated_calls),
    Check("depends on what its kernels compute (policy `mixed`)", Trials.check_dependence),
    Check("traces at the problem's own size", Trials.look_at_full_size),
    Check("agrees where its programs have neighbours", Trials.check_neighbours),
    Check("agrees on other inputs that read the same", Trials.check_after_reading),
    Check("relies on what Triton promises, else there is a warning", Trials.look_at_reliance),
    Check("fits every target", Trials.check_limits),
)
"""In this order."""
