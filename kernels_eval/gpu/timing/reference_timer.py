"""Timing of the reference, in the judge's worker: its calls are launched behind a gate, as a candidate's are."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import torch

from kernels_eval.correctness.outputs import flat
from kernels_eval.gpu.candidate.shared_calls import SharedCalls
from kernels_eval.gpu.device.cuda_driver import CudaDriver
from kernels_eval.gpu.device.gate import QUEUE, Gate
from kernels_eval.reference.inputs import copied

_EMPTY_ROUNDS = 5
_ATTEMPTS = 2
"""Times that a reference's gate gives up, after 2 s each, until it is timed without: the first may have been by chance.
It waits for the device itself (`.item()`), or for memory of tensors so large that nothing is gained by a gate."""
_MOST_LAUNCHES = 2 * QUEUE
"""Of one call, by an upper bound that few references come near. If a stream's queue is full, the gate gives up."""


def ignored(_: list[Any]) -> None:
    """Take results that nobody needs."""


class ReferenceTimer:
    """Times the reference in the worker. Needs a CUDA context."""

    def __init__(self, driver: CudaDriver, gate: Gate | None) -> None:
        """`gate`: None if this device has none; the host's time counts then."""
        self._synchronize, self._is_idle = driver.synchronize, driver.is_idle
        self._gate = gate
        self._gave_up: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """How often, by reference."""

    def call_s(
        self,
        forward: Any,
        sets: Sequence[list[Any]],
        launches: int,
        changes_inputs: bool,
        keep: Callable[[list[Any]], object] = ignored,
    ) -> float:
        """Return the seconds of one call. `launches`: of one call, an upper bound; `keep`: takes calls' results."""
        at_once = max(1, QUEUE // max(launches, 1))
        gate = self._gate_for(forward, launches)
        empty_s = median(self._timed(None, [], gate)[0] for _ in range(_EMPTY_ROUNDS))
        spent = 0.0
        with torch.no_grad():
            self._warm_up(forward, sets[: at_once + 1], changes_inputs)
            for first in range(0, len(sets), at_once):
                gate = self._gate_for(forward, launches)
                part = sets[first : first + at_once]
                given = [copied(inputs) for inputs in part] if changes_inputs else part
                part_s, results = self._timed(forward, given, gate)
                keep(results)
                del results  # the next part's calls need their memory
                spent += max(0.0, part_s - empty_s)
        return spent / len(sets)

    def serial_s(self, forward: Any, calls: SharedCalls, launches: int) -> float | None:
        """Return the seconds of one call that starts when its inputs have just arrived, the median of these calls.

        None if the reference cannot be timed behind a gate.
        """
        gate = self._gate_for(forward, launches)
        if gate is None or forward in self._gave_up:
            return None
        calls.stage()
        spent: list[float] = []
        with torch.no_grad():
            empty_s = median(self._timed(None, [], gate)[0] for _ in range(_EMPTY_ROUNDS))
            for call, inputs in enumerate(calls.sets):
                calls.deliver(call, is_private=True)
                spent.append(self._timed(forward, [inputs], gate)[0])
                if forward in self._gave_up:  # after two seconds, which each further call would take
                    return None
        return median(spent) - empty_s

    def _gate_for(self, forward: Any, launches: int) -> Gate | None:
        """Return the gate, if the reference's calls can be launched behind one."""
        return self._gate if launches <= _MOST_LAUNCHES and self._gave_up.get(forward, 0) < _ATTEMPTS else None

    @staticmethod
    def _warm_up(forward: Any, sets: Sequence[list[Any]], changes_inputs: bool) -> None:
        """Load the kernels, and have memory ready for all outputs: either may wait for the device."""
        inputs = copied(sets[0]) if changes_inputs else sets[0]
        outputs = [value for value in flat(forward(*inputs))[0] if isinstance(value, torch.Tensor)]
        [torch.empty_like(value) for value in outputs for _ in sets]

    def _timed(self, forward: Any, sets: Sequence[list[Any]], gate: Gate | None) -> tuple[float, list[Any]]:
        """Return the seconds from the gate's opening, or the first call, to an idle device, and the calls' results."""
        self._synchronize()
        if gate is None:
            started = time.perf_counter()
            results = self._call(forward, sets)
            self._synchronize()
            return time.perf_counter() - started, results
        gate.close()
        results = self._call(forward, sets)
        gate.end()
        gate.page.wait_until_seen()
        started = time.perf_counter()
        gate.page.open()
        gate.page.wait_for_end(self._is_idle)
        spent = time.perf_counter() - started
        self._synchronize()
        if gate.page.gave_up:
            del results
            if sets:
                self._gave_up[forward] = self._gave_up.get(forward, 0) + 1
            return self._timed(forward, sets, None)
        return spent, results

    @staticmethod
    def _call(forward: Any, sets: Sequence[list[Any]]) -> list[Any]:
        """Make all calls; keeps their results, as a candidate's are: memory used again would be in the cache."""
        return [forward(*inputs) for inputs in sets]
