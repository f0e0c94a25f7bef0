"""Judge's side of the session with a candidate's process on a GPU (candidate.process), in the judge's worker.

The clock is here: a round is timed from the moment at which its inputs are complete in the shared memory, and the gate
is opened, to its end; only what lies in the memory then counts. Every answer is validated here before the judge reads
it.
"""

import pickle
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.gpu.candidate.profiling import KernelRecord
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.candidate.shared_weights import in_batches, publish_weights
from kernels_eval.gpu.device.gate import LONGEST_WAIT_S, GatePage
from kernels_eval.gpu.device.shared_memory import Transport
from kernels_eval.gpu.device.watch import Watch
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import FailedAnswer, OutputForm, StateAnswer
from kernels_eval.verdict import Resources, Status

_RANDOM = random.SystemRandom()
_MAX_PAYLOAD = 1 << 20
_PATIENCE_S = 0.05
MAX_CALLS = 512
"""Calls of one round."""
JUDGE_WALL_S = 60.0
"""Wall time added to a candidate's limits for the judge's part of the session, and for waiting for the device."""
Seconds = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]


def nothing() -> None:
    """Do nothing, where others have something to do meanwhile."""


class CallOutputs(FrozenModel):
    """Outputs of one call. Their contents lie in the shared device memory, in slots of the expected forms."""

    structure: Annotated[str, Field(max_length=20_000)]
    """Structure of the result, as described by kernels_eval.correctness.outputs."""
    outputs: Annotated[tuple[OutputForm, ...], Field(max_length=256)]


class RoundAnswer(FrozenModel):
    """Outputs of every call in one round, and observations made beside them."""

    kind: Literal["round"]
    calls: Annotated[tuple[CallOutputs, ...], Field(max_length=MAX_CALLS)]
    unjoined_s: Seconds = 0.0
    """Shortest time for which other streams went on after the default one was done; 0 in a timed round."""
    kernels: Annotated[tuple[KernelRecord, ...], Field(max_length=100_000)] = ()
    """Activities on the device, in a profiled round."""
    threads: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Threads with Python frames after the round."""
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)] = ()


CandidateAnswer = StateAnswer | FailedAnswer | RoundAnswer
CANDIDATE_ANSWER: TypeAdapter[CandidateAnswer] = TypeAdapter(Annotated[CandidateAnswer, Field(discriminator="kind")])


@dataclass(frozen=True)
class RoundRequest:
    """Kind of round that is asked for."""

    poison: bool = True
    """Fill fresh memory with NaN (costs device time)."""
    profiled: bool = False
    suppressed: bool = False
    """The candidate's kernels do nothing."""
    resources: bool = False
    timed: bool = False
    gated: bool = False
    """Launch all calls before the inputs arrive; the judge opens the gate."""
    held: bool = False
    """Keep a gated round off the device until the judge admits it."""
    early: bool = False
    """Have the inputs there before the calls are launched, in a round that shows if a call's host code reads values."""
    tells: bool = False
    """Say when the first call has returned, with what it had to compile: the device has so much time from then on."""
    serial: bool = False
    """The inputs of each call arrive when the call before it has ended. In a gated round each has a gate of its own.
    Without gates it is launched when the judge says so: its host's time counts."""


@dataclass(frozen=True)
class SerialCall:
    """One call of a serial round. All seconds by the judge's clock."""

    spent_s: float
    """From its gate's opening to its end."""
    waited_s: float = 0.0
    """From its inputs' arrival to the gate's opening. A candidate can put off the words that are waited for."""
    sampled_s: float = 0.0
    """From its end, or the last look, to the sample of its outputs."""
    seen_s: float | None = None
    """From its end to the first look that finds it told on the device (kernels_eval.gpu.device.watch); None: no look is
    left then, or none was made."""
    counts: bool = True
    """Its time counts. Looks keep the copy engine from host code that waits: with them it does not."""
    is_told: bool = False
    """A look has found the end told, and read the outputs then. `seen_s` may also be that of the last look."""


@dataclass(frozen=True)
class Round:
    """One round as the judge saw it. All seconds by the judge's clock."""

    answer: RoundAnswer
    host_s: float
    """From the gate's opening, or go, to the end."""
    before_s: float = 0.0
    """From complete inputs to the gate's opening: the device changes from the worker to the candidate's process."""
    after_s: float = 0.0
    """From the first samples of the outputs to all samples: the device changes back."""
    gave_up: bool = False
    """The gate opened by itself, since a call waited for the device: the time says nothing."""
    sample_s: float = 0.0
    """From the end to the first samples of the outputs."""
    serial: tuple[SerialCall, ...] = ()
    """Each call of a serial round."""
    is_profiled: bool = False


class Session:
    """One candidate, from its start to its end. A context manager: leaving it has the candidate killed.

    It does not wait for that. Another one may `start` meanwhile, in which no code of its candidate runs; before `load`
    `wait_until_ended` has to be called.
    """

    def __init__(self, fork_server: ForkServer, limits: Limits, descriptor: int, page: GatePage) -> None:
        """`descriptor`: the file that a candidate's process may map; `page`: its first page."""
        self._page = page
        self._configurations = 0
        self._child = Child(fork_server, limits, descriptor, CANDIDATE_ANSWER)

    def __enter__(self) -> "Session":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have the candidate ended."""
        self._child.release()

    def wait_until_ended(self) -> None:
        """Wait until the candidate's process has ended, and the device has its memory back."""
        self._child.wait_until_ended()

    def start(self, job: dict[str, Any]) -> None:
        """Hand the job over. No code of the candidate runs yet: a failure is a fault of the machine."""
        try:
            self._child.send({"kind": "start"}, [pickle.dumps(job)])
            self.expect("started")
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a process for candidates did not come up: {failed.message}") from failed

    def empty_round(self, calls: SharedCalls, gated: bool, held: bool = False, serial: bool = False) -> Round:
        """Make a round without calls: between `start` and `load`."""
        try:
            return self.run(calls, RoundRequest(timed=True, gated=gated, held=held, serial=serial), JUDGE_WALL_S, True)
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a round without a candidate failed: {failed.message}") from failed

    def load(self, meanwhile: Callable[[], object] = nothing) -> StateAnswer:
        """Have the candidate's source executed; returns the forms of its parameters and buffers.

        `meanwhile`: called while the candidate is at it.
        """
        self._child.send({"kind": "load"})
        meanwhile()
        answer = self.receive()
        if not isinstance(answer, StateAnswer):
            raise out_of_turn("the process answered out of turn")
        self._configurations = answer.configurations
        return answer

    def set_weights(
        self,
        given: GivenWeights,
        transport: Transport,
        order: Callable[[], AbstractContextManager[object]],
        forgets: bool = False,
        is_renewable: bool = False,
    ) -> None:
        """Copy weights by name into the candidate's model, through the shared memory: before the first round.

        `order`: in which they are copied here; nobody waits for the candidate in it. `forgets`: what the candidate's
        constructor computed of its own weights is lost then. `is_renewable`: others may come between later rounds.
        """
        weights, dtypes = given.own, given.dtypes
        as_registered = {name: name in given.as_registered for name in weights}
        header = {
            "kind": "weights",
            "as_registered": as_registered,
            "forgets": forgets,
            "is_renewable": is_renewable,
        }
        sizes = {name: tensor.numel() * dtypes[name].itemsize for name, tensor in weights.items()}
        batches = list(in_batches(sizes, transport.nbytes))
        for pieces in batches:
            with order():
                nbytes = publish_weights(transport, weights, dtypes, pieces)
            come = {"nbytes": nbytes, "pieces": [vars(piece) for piece in pieces], "is_last": pieces is batches[-1]}
            self._child.send({**header, **come})
            self.expect("taken")

    def run(
        self,
        calls: SharedCalls,
        request: RoundRequest,
        wall_s: float,
        is_empty: bool = False,
        launched_s: float | None = None,
    ) -> Round:
        """Have one round made, in `wall_s` at most; raises CandidateFailedError if it fails.

        `is_empty`: the same round without its calls; `launched_s`: the limit once a candidate that `tells` has told.
        """
        calls.publish()
        prepared = self.prepare(calls, request, wall_s, is_empty)
        prepared.launched_s = launched_s
        prepared.make()
        return prepared.answered()

    def prepare(
        self, calls: SharedCalls, request: RoundRequest, wall_s: float, is_empty: bool = False
    ) -> "PreparedRound":
        """Have the candidate prepare a round whose inputs are published. Of a gated one it launches all calls."""
        self._child.limit_wait(wall_s)
        requests = [] if is_empty else calls.requests()
        groups = calls.count if request.serial else 1
        if request.serial:
            calls.stage()
        if request.early:
            calls.complete()
        header = {"kind": "round", "nbytes": calls.nbytes, "calls": requests, "groups": groups, **vars(request)}
        self._child.send(header)
        if request.held:
            self._end_long_waits(wall_s)
        self.expect("prepared")
        return PreparedRound(self, self._child, self._page, calls, request, wall_s)

    def _end_long_waits(self, wall_s: float) -> None:
        """Give the gate up if a call waits for the device, which is held back: no other answer would ever come."""
        started = time.perf_counter()
        while not self._child.has_news(_PATIENCE_S) and time.perf_counter() < started + wall_s:
            if time.perf_counter() > started + LONGEST_WAIT_S:  # each time: the candidate may close the gate only now
                self._page.give_up()

    def expect_launched(self) -> None:
        """Wait until the first call has returned, with what it had to compile."""
        try:
            self.expect("launched")
        except CandidateFailedError as failed:
            if failed.status is not Status.TIMEOUT or self._configurations < 2:
                raise
            message = f"{failed.message} in a first call, which compiles and times up to {self._configurations} "
            message += "configurations: have fewer, or raise judge.compile_timeout_s"
            raise CandidateFailedError(failed.status, failed.category, message) from failed

    def expect(self, kind: str) -> None:
        """Wait for a message that has nothing but its kind."""
        header, _ = self._child.receive_unchecked(_MAX_PAYLOAD)
        if header != {"kind": kind}:
            self._child.check(header)
            raise out_of_turn("the process answered out of turn")

    def receive(self) -> CandidateAnswer:
        """Wait for an answer, and validate it."""
        answer: CandidateAnswer = self._child.receive(_MAX_PAYLOAD)[0]
        return answer


@dataclass
class PreparedRound:
    """A round that the candidate has prepared. Of a held one nothing runs on the device before `make`."""

    session: Session
    child: Child
    page: GatePage
    calls: SharedCalls
    request: RoundRequest
    wall_s: float
    launched_s: float | None = None
    _seconds: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    _serial: tuple[SerialCall, ...] = ()

    def make(self) -> None:
        """Have the round made and timed, samples of its outputs taken, then the outputs copied: what counts is here."""
        if self.request.held:
            self.page.admit()
        if self.request.held or (self.request.serial and self.request.gated):
            self.page.wait_until_seen()  # how long the stream takes to notice is not timed: no input is there yet
        if self.request.serial:
            self._make_serially()
            return
        self.calls.complete()
        completed = time.perf_counter()
        started, ended = self._sampled_at_end() if self.request.gated else self._open()
        came_s = self.calls.sample_at_once()
        sampled = time.perf_counter()
        self.calls.sample()
        after_s = time.perf_counter() - sampled
        self.calls.collect()
        self._seconds = ended - started, started - completed, after_s, came_s - ended

    def _sampled_at_end(self) -> tuple[float, float]:
        """Do what `_gated` does, and have the device take the first samples when it tells the end."""
        self.calls.sample_at_end()  # while the device changes to the candidate's process
        try:
            return self._gated()
        except BaseException:
            self.calls.forget_samples()
            raise

    def _make_serially(self) -> None:
        """Have each call made when the one before it has ended, and a sample taken of its outputs right then."""
        made: list[SerialCall] = []
        watched = range(self.calls.count)
        if not self.request.gated:
            watched = _RANDOM.sample(watched, len(watched) // 2)
            self.child.send({"kind": "go"})
        for call in range(self.calls.count):
            watch = self.calls.watch(call) if call in watched else None
            if watch is None:
                self.calls.deliver(call)
            else:
                watch.begin()
            delivered = time.perf_counter()
            opened, ended = self._gated(call + 1, watch)
            seen = None if watch is None else watch.wait_until_told()
            sampled_from = ended if seen is None else time.perf_counter()
            sampled_s = self.calls.sample_call(call) - sampled_from
            if watch is not None:  # after the sample: of a call that outlasts its looks, that is timed
                self.calls.keep_looks(watch)
            seen_s = None if seen is None else seen - ended
            counts = self.request.gated or watch is None
            is_told = watch is not None and watch.is_told
            made.append(SerialCall(ended - opened, opened - delivered, sampled_s, seen_s, counts, is_told))
        self.calls.sample()
        self.calls.collect()
        self._serial = tuple(made)
        self._seconds = sum(call.spent_s for call in made), 0.0, 0.0, 0.0

    def answered(self) -> Round:
        """Return a round that was made, with the candidate's answer."""
        if self.request.gated or self.request.serial:
            self.session.expect("done")
        answer = self.session.receive()
        if not isinstance(answer, RoundAnswer):
            raise out_of_turn("the process answered out of turn")
        gave_up = self.request.gated and self.page.gave_up
        host_s, before_s, after_s, sample_s = self._seconds
        return Round(
            answer, host_s, before_s, after_s, gave_up, sample_s, self._serial, is_profiled=self.request.profiled
        )

    def _gated(self, group: int = 1, watch: Watch | None = None) -> tuple[float, float]:
        """Open a group's gate; returns when it was opened, and when the device told the end."""
        if self.request.gated:
            self.page.wait_until_seen(group)
        started = time.perf_counter()
        self.page.open(group)
        self.page.wait_for_end(
            lambda: self.child.has_news() or time.perf_counter() > started + self.wall_s,
            group,
            None if watch is None else watch.follow,
        )
        ended = time.perf_counter()
        if self.page.ended < group:
            self.child.check(self.child.receive_unchecked(_MAX_PAYLOAD)[0])
            raise out_of_turn("the process answered before the device was done")
        return started, ended

    def _open(self) -> tuple[float, float]:
        """Have a round without a gate made; returns when it started and ended."""
        started = time.perf_counter()
        self.child.send({"kind": "go"})
        if self.request.tells:
            self.session.expect_launched()
            self.child.limit_wait(self.wall_s if self.launched_s is None else self.launched_s)
        self.session.expect("done")
        return started, time.perf_counter()
