"""Timing of a candidate against the reference, in the judge's worker: rounds of calls until the fastest ones agree.

Each round draws fresh inputs. The reference makes the calls in this process, then the candidate makes the same calls in
its own, and every output of the candidate is checked. A candidate launches its calls before it is this worker's turn.
Both are timed by this process's clock from the opening of a gate (gpu.device.gate) to the end that the device
tells, less the time of a round without calls. A round has enough calls that this time is a small part of it, and enough
sets of inputs that none is left in the L2 cache from the round before.
"""

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from statistics import median

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.candidate.session import MAX_CALLS, PreparedRound, Round, RoundRequest, SerialCall
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.device.gate import QUEUE
from kernels_eval.gpu.timing.statistics import FASTEST, Estimate, estimate, is_settled

MIN_ROUNDS = FASTEST
_ROUND_S = 2e-3
"""Time of a round on the device that is aimed at: a thousand times the spread of a round without calls."""
_SLACK_BEFORE_S, _SLACK_AFTER_S, _SLACK_END_S, _SLACK_SAMPLE_S = 2e-5, 1.5e-4, 1e-5, 2e-5
"""Time that the device may take longer than usual to change to the candidate's process, and back. With honest kernels
the way there varied by 10 us, and the way back, in which the worker calls the driver, by 150 (one H100). The samples
that come by themselves at an end vary by 10 (one H200), those that the host asks for by more."""
_USUAL_WAIT = 1.25
"""Multiple of the median wait for a gate's kernel that is usual. The wait is for three turns and a part of one, so the
longest is 4 / 3.5 of the median; what is longer was put off, or the machine is busy."""
_SLACK_LOOK_S = 5e-7
"""The same of the look that finds an end told: estimated, for a median of 32 calls and looks of 1 to 2 us."""
_FIRST_CALLS = 16
_SERIAL_ROUNDS = 3
"""Rounds of calls one by one at most."""
_MOST_PROFILED = 128
"""Calls of a profiled round: its answer lists each kernel."""
_RANDOM = random.SystemRandom()


class UnreliableTimingError(Exception):
    """The measurement failed, which says nothing of the kernel. `category` names the reason."""

    def __init__(self, category: ErrorCategory, message: str, reference_s: float | None = None) -> None:
        """`reference_s`: the reference's time, if it was too long."""
        super().__init__(message)
        self.category = category
        self.reference_s = reference_s


@dataclass(frozen=True)
class Overhead:
    """Medians of rounds without calls, in a process that has no candidate yet, in seconds."""

    host_s: float
    before_s: float
    after_s: float
    sample_s: float = 0.0

    def late_s(self, made: Round, more_s: float) -> float:
        """Return by how much the device changed between processes, or was sampled, later than usual in a round.

        A candidate may be at work then, before or after the time that is measured: it counts. `more_s`: what the first
        samples take longer than those of one call, without a candidate.
        """
        before_s = made.before_s - self.before_s - _SLACK_BEFORE_S
        after_s = made.after_s - self.after_s - _SLACK_AFTER_S
        sample_s = made.sample_s - self.sample_s - more_s - _SLACK_END_S
        return max(0.0, before_s) + max(0.0, after_s) + max(0.0, sample_s)


@dataclass(frozen=True)
class SerialOverhead:
    """Medians of calls one by one that do nothing, in a process that has no candidate yet, in seconds."""

    spent_s: float = 0.0
    spread_s: float = 0.0
    """By which the shortest one took less: so much too short may a call alone seem on a busy machine."""
    waited_s: float = 0.0
    sampled_s: float = 0.0
    seen_s: float | None = None

    def call_s(self, made: SerialCall) -> float:
        """Return the seconds of a call one by one, with the time for which it was kept from starting or being sampled.

        Its inputs are there from the beginning of the wait on, and a candidate can put off what is waited for. Where a
        look has found the end told, its time says when the outputs were read (`unseen_s`).
        """
        waited_s = made.waited_s - _USUAL_WAIT * self.waited_s
        sampled_s = made.sampled_s - self.sampled_s - _SLACK_SAMPLE_S if not made.is_told else 0.0
        return made.spent_s - self.spent_s + max(0.0, waited_s) + max(0.0, sampled_s)

    def unseen_s(self, calls: Sequence[SerialCall]) -> float:
        """Return by how much calls were told to end before the device was done, in seconds of a call."""
        seen_s = _median_seen_s(calls)
        if seen_s is None or self.seen_s is None:
            return 0.0
        return max(0.0, seen_s - self.seen_s - _SLACK_LOOK_S)


@dataclass(frozen=True)
class Overheads:
    """Overheads of rounds behind a gate, of rounds without one, and of calls one by one, with gates and without."""

    gated: Overhead
    open: Overhead
    serial: SerialOverhead = SerialOverhead()
    serial_open: SerialOverhead = SerialOverhead()


def overhead_of(rounds: Sequence[Round]) -> Overhead:
    """Return the medians of rounds without calls."""
    return Overhead(
        host_s=median(made.host_s for made in rounds),
        before_s=median(made.before_s for made in rounds),
        after_s=median(made.after_s for made in rounds),
        sample_s=median(made.sample_s for made in rounds),
    )


def serial_overhead_of(calls: Sequence[SerialCall]) -> SerialOverhead:
    """Return the medians of calls one by one that do nothing."""
    spent_s = median(made.spent_s for made in calls)
    return SerialOverhead(
        spent_s=spent_s,
        spread_s=spent_s - min(made.spent_s for made in calls),
        waited_s=median(made.waited_s for made in calls),
        sampled_s=median(made.sampled_s for made in calls),
        seen_s=_median_seen_s(calls),
    )


def _median_seen_s(calls: Sequence[SerialCall]) -> float | None:
    """Return the median time from an end to the look that finds it told; None if no look did."""
    seen = [made.seen_s for made in calls if made.seen_s is not None]
    return median(seen) if seen else None


def fewer(count: int) -> int:
    """Return a secret number of calls, of which `count` are the most: no call can know that it is a round's last."""
    return count - _RANDOM.randrange(count // 4 + 1)


def calls_of_round(call_s: float, sets_in_cache: float, most: int) -> int:
    """Return how many calls make a round: 2 ms of them, and so many that none finds its inputs in the L2 cache."""
    return max(1, min(math.ceil(max(_ROUND_S / max(call_s, 1e-7), 2.5 * sets_in_cache)), most, MAX_CALLS))


@dataclass
class Measured:
    """Measurements of all rounds together."""

    candidate: Estimate
    reference: Estimate
    second: Estimate | None
    """The reference under another baseline, if that is asked for."""
    rounds: int
    calls: int
    """In each round."""
    is_gated: bool
    """False if the candidate's host code waits for the device: its time counts then."""
    serial_s: float | None = None
    """Seconds of a call that starts when the one before it has ended, and its inputs have just arrived."""
    told_serial_s: float | None = None
    """The same without what kept it from starting or being sampled: a candidate may make that long, and not this."""
    least_serial_s: float | None = None
    """The least of all rounds of such calls: one is made again if they seem to have overlapped before."""

    @property
    def alone_s(self) -> float | None:
        """Seconds of a call alone, as far as it is known."""
        return self.least_serial_s or self.serial_s


@dataclass(frozen=True)
class TimingPlan:
    """Plan by which a candidate is timed."""

    most_calls: int
    """Calls whose inputs and outputs fit into memory."""
    set_bytes: int
    """Bytes of one call's inputs and outputs."""
    cache_bytes: float
    """Size of the L2 cache."""
    launches: int
    """Launches of one call of the candidate."""
    is_gated: bool
    overheads: Overheads
    precision: float
    rounds: int
    wall_s: float
    profiled_round: int
    """Number of the round, secretly drawn, before which one like it is profiled and not counted."""
    serial_round: int = 0
    """The same of a round whose calls are made one by one."""
    serial_calls: int = 0
    """Calls of that round; 0: there is none."""
    late_s: Callable[[float, float, float, bool], float] = lambda call_s, serial_s, reference_s, gated: 0.0
    """Returns by how much a call alone takes longer than one in a round says, but for noise (`overlapped_s`).

    Of a call's time in a round and alone, the reference's in a round, and whether the rounds are gated."""
    sampling_s: Callable[[int], float] = lambda calls: 0.0
    """Returns what the first samples of so many calls take without a candidate."""
    some: Callable[[int], int] = fewer
    """Returns the secret number of calls of each round, for the largest one."""

    def calls(self, call_s: float) -> int:
        """Return the number of calls in a round if the shorter one takes `call_s`."""
        most = min(self.most_calls, QUEUE // max(self.launches, 1))
        return calls_of_round(call_s, self.cache_bytes / max(self.set_bytes, 1), most)


@dataclass(frozen=True)
class Device:
    """Work of a timer on a device. Between two timed calls other workers may use it."""

    reference_s: Callable[[SharedCalls], float]
    """Seconds of one call of the reference."""
    second_s: Callable[[SharedCalls], float] | None
    """The same under another baseline, if that is asked for: in every round, but rounds do not go on for it."""
    new_calls: Callable[[int], SharedCalls]
    """Draws and publishes inputs of so many calls."""
    prepare: Callable[[SharedCalls, RoundRequest], PreparedRound]
    """Has the candidate prepare a round."""
    check: Callable[[Round, SharedCalls], None]
    """Checks a round that was made."""
    alone: Callable[[], AbstractContextManager[None]]
    """Keeps all others from the device."""
    can_hold: bool
    """A gated round can be prepared beside others: nothing of it runs before it is made."""


@dataclass
class Timer:
    """Makes rounds until the fastest ones agree."""

    plan: TimingPlan
    device: Device

    def measure(self) -> Measured:
        """Time until settled. Raises UnreliableTimingError if the clock cannot say."""
        plan, device = self.plan, self.device
        started = time.perf_counter()
        gated, count = self._first_round()
        overhead = self._overhead(gated)
        candidate: list[float] = []
        reference: list[float] = []
        second: list[float] = []
        serial_s: float | None = None
        told_serial_s: float | None = None
        for number in range(max(plan.rounds, MIN_ROUNDS)):
            if number == plan.profiled_round:
                self._profile(gated, min(plan.some(count), _MOST_PROFILED))
            if number == plan.serial_round and plan.is_gated and plan.serial_calls:
                serial_s, told_serial_s = self._serial_s(gated)
            calls, request = device.new_calls(plan.some(count)), self._request(gated)
            made = self._made(calls, request, reference, second)
            candidate.append(self._call_s(made, calls, overhead))
            settled = len(candidate) >= MIN_ROUNDS and is_settled(candidate, reference, plan.precision)
            del calls  # the next round's inputs need its memory
            late = len(candidate) >= MIN_ROUNDS and time.perf_counter() - started > plan.wall_s
            if number >= plan.profiled_round and (settled or late):
                break
        found, beside = estimate(candidate), estimate(reference)
        return Measured(
            candidate=found,
            reference=beside,
            second=estimate(second) if second else None,
            rounds=len(candidate),
            calls=count,
            is_gated=gated,
            serial_s=serial_s,
            told_serial_s=told_serial_s,
            least_serial_s=None if serial_s is None else self._least_serial_s(serial_s, found, beside, gated),
        )

    def _profile(self, gated: bool, count: int) -> None:
        """Have a round profiled that is like those that count: where they are gated, it is."""
        request = replace(self._request(gated), profiled=True)
        _, made = self._checked(count if gated else min(count, 4), request)
        if made.gave_up:
            raise UnreliableTimingError(
                ErrorCategory.CLOCK_DISAGREEMENT, "a profiled round did not get into the device's queue"
            )

    def _serial_s(self, gated: bool) -> tuple[float, float]:
        """Have a round's calls made one by one; returns the seconds of one, and those that the device told."""
        _, made = self._checked(self.plan.serial_calls, replace(self._request(gated), serial=True))
        if made.gave_up:
            raise UnreliableTimingError(
                ErrorCategory.CLOCK_DISAGREEMENT, "calls one by one did not get into the device's queue"
            )
        overhead = self.plan.overheads.serial if gated else self.plan.overheads.serial_open
        counted = [call for call in made.serial if call.counts]
        told_s = median(call.spent_s for call in counted) - overhead.spent_s
        return median(overhead.call_s(call) for call in counted) + overhead.unseen_s(made.serial), told_s

    def _least_serial_s(self, serial_s: float, call: Estimate, reference: Estimate, gated: bool) -> float:
        """Make calls one by one again while they seem to have overlapped before; returns the least seconds of one.

        A disturbance makes them longer, never shorter: of 190 honest verdicts on an H200 44 had too long ones.
        """
        for _ in range(_SERIAL_ROUNDS - 1):
            if not self.plan.late_s(call.seconds, serial_s, reference.seconds, gated):
                break
            with contextlib.suppress(UnreliableTimingError):  # what is known already stands
                serial_s = min(serial_s, self._serial_s(gated)[0])
        return serial_s

    def _first_round(self) -> tuple[bool, int]:
        """Make a round that is not counted; returns whether the gate can be used, and the calls of a round."""
        plan = self.plan
        gated = plan.is_gated and plan.launches <= QUEUE
        # Without a gate first, and beside others: a kernel that is loaded now may wait for the device.
        self._checked(1, self._request(False), is_timed=False)
        count = min(_FIRST_CALLS, plan.most_calls, max(1, QUEUE // max(plan.launches, 1)))
        # With inputs that are there already: host code that reads them must not read the pattern in their place.
        calls, made = self._checked(count, replace(self._request(gated), early=gated))
        if made.gave_up:
            gated = False
            calls, made = self._checked(count, self._request(gated))
        with self.device.alone():  # for long where `torch.compile` compiles now, once for each problem
            reference_s = self.device.reference_s(calls)
        return gated, plan.calls(min((made.host_s - self._overhead(gated).host_s) / count, reference_s))

    def _checked(self, count: int, request: RoundRequest, is_timed: bool = True) -> tuple[SharedCalls, Round]:
        """Have a round made of so many calls, and check it unless the gate gave up."""
        calls = self.device.new_calls(count)
        made = self._made(calls, request, is_timed=is_timed)
        if not made.gave_up:  # its time says nothing, and the round is made again
            self.device.check(made, calls)
        return calls, made

    def _made(
        self,
        calls: SharedCalls,
        request: RoundRequest,
        reference: list[float] | None = None,
        second: list[float] | None = None,
        is_timed: bool = True,
    ) -> Round:
        """Have a round made with the device alone if it is timed; one that can be held back is prepared beside others.

        `reference`, `second`: take the reference's times right before and after: the device is as warm for the one as
        for the other.
        """
        device = self.device
        with ExitStack() as stack:
            prepared = device.prepare(calls, request) if request.held else None
            if is_timed:
                stack.enter_context(device.alone())
            if reference is not None:
                reference.append(device.reference_s(calls))
            prepared = prepared or device.prepare(calls, request)
            prepared.make()
            if second is not None and device.second_s is not None:
                second.append(device.second_s(calls))
        return prepared.answered()

    def _request(self, gated: bool) -> RoundRequest:
        return RoundRequest(poison=False, timed=True, gated=gated, held=gated and self.device.can_hold)

    def _call_s(self, made: Round, calls: SharedCalls, overhead: Overhead) -> float:
        """Check a round, and return the seconds of one call. Raises UnreliableTimingError if it cannot be timed.

        Outputs are checked before the clock: calls that took no time because they did nothing are wrong.
        """
        if made.gave_up:
            raise UnreliableTimingError(
                ErrorCategory.CLOCK_DISAGREEMENT, "a round's calls did not get into the device's queue"
            )
        self.device.check(made, calls)
        if made.host_s <= overhead.host_s:
            message = f"a round of {calls.count} calls took {1e3 * made.host_s:.3f} ms, no longer than an empty one"
            raise UnreliableTimingError(ErrorCategory.CLOCK_DISAGREEMENT, message)
        late_s = overhead.late_s(made, self.plan.sampling_s(calls.count) - self.plan.sampling_s(1))
        return (made.host_s - overhead.host_s + late_s) / calls.count

    def _overhead(self, gated: bool) -> Overhead:
        return self.plan.overheads.gated if gated else self.plan.overheads.open
