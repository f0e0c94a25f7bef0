"""The judge's side of the session with a candidate's process on a GPU, and of the device memory that they share.

The clock is here: a round is timed from the moment at which its inputs have arrived in the shared memory to the answer, and
what counts is what lies in the memory right after.
"""

import os
import pickle
import time
from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.messages import DEVICE_ANSWER, DeviceAnswer, RoundAnswer
from kernels_eval.gpu.shared_memory import GUARD_BYTES, POISON, Layout, Transport, view
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import StateAnswer
from kernels_eval.sandbox.tensor_bytes import TensorForm, bytes_of, form_of

_MAX_PAYLOAD = 1 << 20


@dataclass(frozen=True)
class RoundRequest:
    """What kind of round is asked for."""

    pause_s: float = 0.0
    synchronised: bool = False
    poison: bool = True
    """Fresh memory is filled with NaN (costs device time)."""
    profiled: bool = False
    suppressed: bool = False
    """The candidate's kernels do nothing."""
    resources: bool = False


@dataclass(frozen=True)
class Round:
    """One round as the judge saw it."""

    answer: RoundAnswer
    host_s: float
    """By the judge's clock, from go to answer."""


class SharedCalls:
    """The inputs and outputs of one round's calls: a private twin, the shared memory, and what was found there afterwards."""

    def __init__(
        self, transport: Transport, layout: Layout, sets: list[list[Any]], output_forms: list[TensorForm]
    ) -> None:
        self._transport = transport
        self._layout = layout
        self._sets = sets
        self._output_forms = output_forms
        self.nbytes = layout.nbytes
        self._twin = torch.full((self.nbytes,), POISON, dtype=torch.uint8, device=cuda_driver.DEVICE)
        self._seen = torch.empty_like(self._twin)
        for values, slots in zip(sets, layout.calls, strict=True):
            for value, offset in zip(values, slots.inputs, strict=True):
                if offset is not None and value.numel():
                    view(self._twin, form_of(value), offset).copy_(value)

    @property
    def count(self) -> int:
        """Number of calls."""
        return len(self._sets)

    def requests(self) -> list[dict[str, Any]]:
        """Return what the candidate's process is told of each call."""
        return [
            {
                "inputs": [
                    {"value": value} if offset is None else {"form": form_of(value).model_dump(), "offset": offset}
                    for value, offset in zip(values, slots.inputs, strict=True)
                ],
                "outputs": [
                    {"offset": offset, "nbytes": form.nbytes}
                    for form, offset in zip(self._output_forms, slots.outputs, strict=True)
                ],
            }
            for values, slots in zip(self._sets, self._layout.calls, strict=True)
        ]

    def publish(self) -> None:
        """Put inputs, guards and poison into the shared memory; returns when they have arrived."""
        self._transport.memory(self.nbytes)[: self.nbytes].copy_(self._twin)
        self._transport.pushed(self.nbytes)

    def collect(self) -> None:
        """Keep what lies in the shared memory now."""
        self._transport.pulled(self.nbytes)
        self._seen.copy_(self._transport.memory(self.nbytes)[: self.nbytes])

    def output(self, call: int, index: int, form: TensorForm) -> torch.Tensor:
        """Return one output of one call."""
        return view(self._seen, form, self._layout.calls[call].outputs[index])

    def changed_inputs(self) -> set[int]:
        """Indices of inputs that some call changed."""
        changed: set[int] = set()
        for values, slots in zip(self._sets, self._layout.calls, strict=True):
            for index, (value, offset) in enumerate(zip(values, slots.inputs, strict=True)):
                if offset is not None and value.numel():
                    here = slice(offset, offset + form_of(value).nbytes)
                    if not torch.equal(self._seen[here], self._twin[here]):
                        changed.add(index)
        return changed

    def has_broken_guards(self) -> bool:
        """True where something was written between the slots."""
        starts = [
            offset for slots in self._layout.calls for offset in (*slots.inputs, *slots.outputs) if offset is not None
        ]
        return any(bool((self._seen[start - GUARD_BYTES : start] != POISON).any()) for start in starts)

    def local_calls(self) -> list[list[Any]]:
        """Return the inputs of every call in memory of the judge's own, which a call may change."""
        self._seen.copy_(self._twin)
        return [
            [
                value if offset is None else view(self._seen, form_of(value), offset)
                for value, offset in zip(values, slots.inputs, strict=True)
            ]
            for values, slots in zip(self._sets, self._layout.calls, strict=True)
        ]

    def local_output(self, call: int, index: int, form: TensorForm) -> torch.Tensor:
        """Return where an output of the judge's own run of a call goes."""
        return view(self._seen, form, self._layout.calls[call].outputs[index])


class DeviceSession:
    """One candidate, from its start to its end. A context manager: leaving it kills the candidate."""

    def __init__(self, fork_server: ForkServer, limits: Limits, descriptor: int) -> None:
        self._child = Child(fork_server, limits, descriptor, DEVICE_ANSWER)

    def __enter__(self) -> "DeviceSession":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the candidate, and wait for that: the next one has the device and the shared memory to itself."""
        self._child.stop()

    def wake(self, job: dict[str, Any]) -> None:
        """Hand the job over. Nothing of the candidate runs yet: what goes wrong is the machine's fault."""
        try:
            self._child.send({"kind": "load"}, [pickle.dumps(job)])
            self._expect("awake")
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a process for candidates did not come up: {failed.message}") from failed

    def rehearse(self, calls: SharedCalls, forms: list[TensorForm], request: RoundRequest, wall_s: float) -> Round:
        """Have one round made with kernels of ours that fill outputs of these forms: between `wake` and `begin`."""
        try:
            return self._round(calls, request, wall_s, {"stand_ins": [form.model_dump() for form in forms]})
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a round without a candidate failed: {failed.message}") from failed

    def begin(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Have the candidate's source executed; returns type and shape of its parameters and buffers."""
        self._child.send({"kind": "begin"})
        answer = self._receive()
        if not isinstance(answer, StateAnswer):
            raise out_of_turn("the process answered out of turn")
        return answer.state

    def set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Copy weights by name into the candidate's model."""
        items: list[dict[str, Any]] = []
        payload: list[memoryview] = []
        offset = 0
        for name, tensor in weights.items():
            content = bytes_of(tensor)
            items.append({"name": name, "form": form_of(tensor).model_dump(), "offset": offset})
            payload.append(content)
            offset += content.nbytes
        self._child.send({"kind": "weights", "weights": items}, payload)

    def run(self, calls: SharedCalls, request: RoundRequest, wall_s: float) -> Round:
        """Have one round made, in `wall_s` at most. CandidateFailedError where it fails."""
        return self._round(calls, request, wall_s, {})

    def _round(self, calls: SharedCalls, request: RoundRequest, wall_s: float, more: dict[str, Any]) -> Round:
        header = {"kind": "round", "nbytes": calls.nbytes, "calls": calls.requests(), **vars(request), **more}
        self._child.limit_wait(wall_s)
        self._child.send(header)
        self._expect("prepared")
        calls.publish()
        started = time.perf_counter()
        self._child.send({"kind": "go"})
        self._expect("done")
        host_s = time.perf_counter() - started
        calls.collect()
        answer = self._receive()
        if not isinstance(answer, RoundAnswer):
            raise out_of_turn("the process answered out of turn")
        return Round(answer, host_s)

    def _expect(self, kind: str) -> None:
        """Wait for a message that has nothing but its kind."""
        header, _ = self._child.receive_unchecked(_MAX_PAYLOAD)
        if header != {"kind": kind}:
            self._child.check(header)
            raise out_of_turn("the process answered out of turn")

    def _receive(self) -> DeviceAnswer:
        answer: DeviceAnswer = self._child.receive(_MAX_PAYLOAD)[0]
        return answer


def anonymous_file() -> int:
    """Return a descriptor of memory that can be shared."""
    return os.memfd_create("device")
