"""Start of one candidate on a GPU, in the judge's worker: shared memory, a process with its job, overheads, weights.

The process of the candidate before may still be ending meanwhile, which takes 0.1 s, and more beside other workers.
Until the last of it is gone no code of this candidate runs, nothing is published in the shared memory, and the shared
memory keeps its size: kernels that were launched may go on until their context is gone.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import Session
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.device.worker_memory import keep_within, release_unused_memory
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.renewed_weights import is_renewable
from kernels_eval.gpu.timing.phases import Phase
from kernels_eval.gpu.timing.statistics import FASTEST, estimate
from kernels_eval.gpu.timing.timer import Overheads, SerialOverhead, calls_of_round, overhead_of, serial_overhead_of
from kernels_eval.gpu.worker_state import Quiet, WorkerState
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import StateAnswer

_EMPTY_ROUNDS = 9
_FIRST_CALLS = 16
_LONG_ROUND_S = 0.5
"""A round of the reference that takes longer is not repeated: it hardly varies."""
_QUIET_FOR_S = 30.0
"""Time for which the reference is not timed again: a device gets warmer, and slower."""
_CANDIDATES_INPUTS, _CANDIDATES_OUTPUTS = 1, 2
"""Device memory that is left to the candidate's process: the larger of these multiples of a call's inputs and outputs.
Inputs of 17 GB (KernelBench's largest) leave it no second copy on a GPU of 80 GB."""


class Loaded(NamedTuple):
    """Overheads, times and tensors that are known once a candidate is loaded."""

    overheads: Overheads
    """Of its rounds."""
    quiet: Quiet
    """The reference's time before any code of a candidate was on the device."""
    held: StateAnswer
    """Parameters, buffers and plain tensors."""


@dataclass(frozen=True)
class CandidateStart:
    """Starts one candidate: `reserve`, then `session`, then `load` in it."""

    state: WorkerState
    reference: GpuReference
    sets: CallSets
    job: dict[str, Any]
    """Message to the candidate's process (kernels_eval.gpu.candidate.process), without the mapping of the memory."""
    baseline: str
    """Of the reference's time."""
    is_repeated: bool
    """A measurement of this candidate has failed before."""

    def reserve(self) -> None:
        """Have the shared memory ready. Waits for the end of the process before if its memory is needed for that.

        Raises ReferenceFailedError if one call does not fit into the worker's share.
        """
        state, sets = self.state, self.sets
        keep_within(state.memory_bytes - state.transport.nbytes)  # the problem before may have left less, or nothing
        try:
            with state.lock.shared():
                sets.learn_forms()
        except torch.cuda.OutOfMemoryError:
            state.settle()  # a process that has yet to end may hold the memory that was missing
            with state.lock.shared():
                sets.learn_forms()
        state.phases.ended(Phase.REFERENCE)
        if not sets.is_reserved or self._own_bytes() < sets.least_bytes:
            state.settle()  # the process before has the memory mapped, which would stay taken
            with state.lock.shared():
                state.transport.release()  # it may be larger than this problem needs
                sets.reserve()
        release_unused_memory()
        self._refuse_what_does_not_fit()
        keep_within(self._own_bytes())

    @contextmanager
    def session(self, limits: Limits) -> Generator[Session]:
        """Have a process for the candidate, which has no job yet. After it the worker remembers to wait for its end."""
        state = self.state
        with Session(state.fork_server, limits, state.descriptor, state.page) as session:
            try:
                yield session
            finally:
                state.leftovers.append(session.wait_until_ended)

    def load(self, session: Session, trials: int) -> Loaded:
        """Load the candidate and give it the reference's weights.

        `trials`: as `CallSets.trials` takes it; the first round of them is drawn while the candidate is loaded.
        """
        state = self.state
        session.start({**self.job, "memory": state.transport.mapping(), "device_bytes": state.memory_bytes})
        state.phases.ended(Phase.READY)
        state.settle()  # so far the judge's own code alone has run beside the end of the process before
        overheads = self._overheads(session)
        quiet = self.quiet()

        def draw_ahead() -> None:
            with state.lock.shared():
                self.sets.draw_ahead(trials)

        def one() -> list[Any]:
            self.sets.forget_ahead()  # both may be more than the memory holds
            return self.sets.one()

        with state.phases.during(Phase.LOAD):
            found = session.load(draw_ahead)
            with state.lock.shared():
                weights = self.reference.weights_for(found, one)
            self.give(session, found, weights)
        return Loaded(overheads, quiet, found)

    def give(self, session: Session, held: StateAnswer, weights: GivenWeights) -> None:
        """Set the candidate's weights. `held`: what it has."""
        forgets = bool(held.computed) and not self.reference.constructor.computed
        renewable = is_renewable(self.reference)
        session.set_weights(weights, self.state.transport, self.state.lock.shared, forgets, renewable)

    def quiet(self) -> Quiet:
        """Return times on a device on which no candidate is at work: nobody can have slowed it.

        Those of a moment ago if there are any, unless a measurement has failed since.
        """
        state, key = self.state, (self.reference.digest, self.baseline)
        known = state.quiet.get(key)
        if known is not None and not self.is_repeated and time.monotonic() - known[0] < _QUIET_FOR_S:
            return known[1]
        forward = self.reference.forward(True, self.baseline)
        launches = 4 * len(self.reference.eager_launches)

        def rounds_s(count: int, rounds: int) -> list[float]:
            with state.lock.shared():
                calls = self.sets.timed(count)
            with state.lock.alone():  # once for all: each turn that a worker waits for costs more than a round
                return [state.reference_timer.call_s(forward, calls.sets, launches, False) for _ in range(rounds)]

        sets_in_cache = state.facts.rates.cache_bytes / max(self.sets.set_bytes, 1)
        (first_s,) = rounds_s(min(_FIRST_CALLS, self.sets.most_calls), 1)
        count = calls_of_round(first_s, sets_in_cache, self.sets.most_calls)
        call = estimate(rounds_s(count, FASTEST if count * first_s < _LONG_ROUND_S else 1))
        serial_s = self._serial_s(forward, launches)
        with state.lock.alone():
            sampling = self.sets.sampling_s()
        found = Quiet(call, serial_s, sampling)
        state.quiet[key] = time.monotonic(), found
        return found

    def _serial_s(self, forward: Any, launches: int) -> float | None:
        """Return the reference's time for one call alone; None if the candidate's is not taken either."""
        if not self.sets.serial_calls() or not self.state.is_gated:
            return None
        with self.state.lock.shared():
            calls = self.sets.timed(self.sets.serial_calls())
        with self.state.lock.alone():
            return self.state.reference_timer.serial_s(forward, calls, launches)

    def _refuse_what_does_not_fit(self) -> None:
        """Raise ReferenceFailedError if the tensors of one call are more than the worker has for them."""
        missing = self.sets.least_bytes - self._own_bytes()
        if missing > 0:
            share = self.state.memory_bytes
            raise ReferenceFailedError(
                f"the problem does not fit into this worker's {share / 2**30:.1f} GiB (judge.device_memory_gb): the "
                f"tensors of one call take {(share + missing) / 2**30:.1f} or more, without weights"
            )

    def _own_bytes(self) -> int:
        """Return what is left of the worker's share beside the shared memory and the candidate's process."""
        candidates = max(_CANDIDATES_INPUTS * self.reference.input_bytes, _CANDIDATES_OUTPUTS * self.sets.output_bytes)
        return self.state.memory_bytes - self.state.transport.nbytes - candidates

    def _overheads(self, session: Session) -> Overheads:
        """Return the time of rounds without calls, measured in a process that has no candidate yet."""
        state = self.state
        key = "" if state.is_gated else self.reference.digest  # host copies take time by their size
        if key not in state.overheads:
            with state.lock.shared():
                calls = self.sets.small() if state.is_gated else self.sets.timed(1)
            with state.lock.alone():
                ungated = overhead_of([session.empty_round(calls, False) for _ in range(_EMPTY_ROUNDS)])
                state.overheads[key] = Overheads(ungated, ungated)
                if state.is_gated:
                    rounds = [session.empty_round(calls, True, state.can_hold) for _ in range(_EMPTY_ROUNDS)]
                    serial, serial_open = (self._serial_overhead(session, calls, gated) for gated in (True, False))
                    serial_open = replace(serial_open, seen_s=serial.seen_s)  # a look takes as long
                    state.overheads[key] = Overheads(overhead_of(rounds), ungated, serial, serial_open)
        return state.overheads[key]

    def _serial_overhead(self, session: Session, calls: SharedCalls, gated: bool) -> SerialOverhead:
        held = gated and self.state.can_hold
        rounds = [session.empty_round(calls, gated, held, True) for _ in range(_EMPTY_ROUNDS)]
        return serial_overhead_of([call for made in rounds for call in made.serial])
