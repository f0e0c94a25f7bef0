"""Timed rounds of one candidate, in the judge's worker: what they do on the device, in the order of the workers' lock.

Drawing, publishing and checking share the device with other workers. What is timed has it alone, and so has the copy of
its outputs: it is short, and each turn that a worker waits for costs more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import Expected
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import Round, Session
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.round_checks import LargestErrors, check_timed_round
from kernels_eval.gpu.timing.reference_timer import ignored
from kernels_eval.gpu.timing.timer import Device
from kernels_eval.gpu.worker_state import WorkerState
from kernels_eval.reference.inputs import copied


@dataclass
class TimedRounds:
    """Work of a timer (kernels_eval.gpu.timing.timer) on the device, for one candidate."""

    session: Session
    sets: CallSets
    reference: GpuReference
    state: WorkerState
    config: JudgeConfig
    form: Expected
    """The reference's results on another set, for their forms."""
    can_hold: bool
    """A gated round is held back until it is this worker's turn."""
    errors: LargestErrors
    note_kernels: Callable[[Round, int], None]
    """Takes a profiled round, and the number of its calls."""
    _known: list[Any] = field(default_factory=list[Any], init=False)
    """The reference's results on the round's sets, where they were kept when it was timed."""

    def device(self) -> Device:
        """Return the work for a timer."""
        config = self.config
        keeps = config.baseline == "eager" and not self._changes_inputs
        second = config.second_baseline
        return Device(
            reference_s=self._reference_timer(config.baseline, keeps),
            second_s=None if second is None else self._reference_timer(second),
            new_calls=self._new_calls,
            prepare=lambda calls, request: self.session.prepare(calls, request, config.timeout_s),
            check=self._check,
            alone=self.state.lock.alone,
            can_hold=self.can_hold,
        )

    @property
    def _changes_inputs(self) -> bool:
        return bool(self.form.changed_inputs)

    def _reference_timer(self, baseline: str, keeps: bool = False) -> Callable[[SharedCalls], float]:
        """Return what times the reference under a baseline, in seconds of one call.

        `keeps`: its results, in `_known`.
        """
        forward = self.reference.forward(True, baseline)
        launches = 4 * len(self.reference.eager_launches)  # kernels of one operator at most, nearly always
        timer, changes = self.state.reference_timer, self._changes_inputs

        def call_s(calls: SharedCalls) -> float:
            if keeps:
                self._known.clear()
            return timer.call_s(forward, calls.sets, launches, changes, self._known.extend if keeps else ignored)

        return call_s

    def _new_calls(self, count: int) -> SharedCalls:
        self._known.clear()
        with self.state.lock.shared():
            calls = self.sets.timed(count)
            calls.publish()
        return calls

    def _is_beyond(self, call: int, expected: Expected) -> bool:
        kind = self.sets.kinds[call]
        return kind != "plain" and self.reference.kinds.is_beyond(expected, kind)

    def _least_sizes(self, call: int) -> list[float]:
        return self.reference.kinds.least_sizes(self.sets.kinds[call])

    def _check(self, made: Round, calls: SharedCalls) -> None:
        lock = self.state.lock

        def results(call: int) -> list[torch.Tensor]:
            lock.give_way()
            if self._known:
                return self.reference.listed(self._known[call])
            inputs = calls.sets[call]
            return self.reference.results(copied(inputs) if self._changes_inputs else inputs)

        def expected(call: int) -> Expected:
            lock.give_way()
            return self.sets.expected(calls.sets[call])

        with lock.shared():
            check_timed_round(
                made, calls, self.form, results, expected, self.errors, self._is_beyond, self._least_sizes
            )
        if made.is_profiled:
            self.note_kernels(made, calls.count)
