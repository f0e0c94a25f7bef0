"""The judge's side of the sessions with one candidate's two processes: its host code, and the executor of its kernels.

The host code (kernels_eval.tracing.process) turns shapes into programs; the executor (kernels_eval.interpreter.process) runs programs on values. They
know nothing of each other: everything goes through here, and is checked on its way.
"""

import mmap
import os
import pickle
from collections import deque
from dataclasses import replace
from typing import Any

import torch

from kernels_eval.correctness.allowed_operators import MAX_HOST_READS
from kernels_eval.reference.input_sets import same_bytes
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import EXECUTOR_ANSWER, ExecutedAnswer, StateAnswer
from kernels_eval.sandbox.tensor_bytes import TensorForm, bytes_of, form_of, tensor_from
from kernels_eval.trace.schema import FIRST_WEIGHT, HOST_ANSWER, KernelSource, ReadAnswer, TraceAnswer, Upload, View
from kernels_eval.verdict import Status

_ALIGNMENT = 256
_HOST_SHARE = 0.5
"""CPU time of host code, as a share of the candidate's wall time."""
_SPARE_PAYLOAD = 1 << 20
_MAX_UPLOAD = 1 << 31


class Session:
    """One candidate, from its start to its end. A context manager: leaving it kills the candidate."""

    def __init__(self, hosts: ForkServer, executors: ForkServer, limits: Limits, strict: bool) -> None:
        self._strict = strict
        self._memory = os.memfd_create("inputs")
        self._mapping: mmap.mmap | None = None
        # The host is not handed the inputs' memory: it could map it, and compute.
        # And it computes nothing, so that half of the time is more than it needs: one that spins is not worth the rest.
        host_limits = replace(limits, cpu_s=_HOST_SHARE * limits.wall_s)
        self._host = Child(hosts, host_limits, None, HOST_ANSWER)
        self._executor = Child(executors, limits, self._memory, EXECUTOR_ANSWER)
        self._inputs: list[Any] = []
        self._asked: deque[bool] = deque()
        self.has_read = False
        """Host code was told a value."""
        self.reads: list[View] = []
        """The values that it was told in the last call that had values."""
        self.wrote_weights = False
        """A kernel wrote into a weight or a buffer that the judge set."""
        self.weight_bytes: list[int] = []
        """Sizes in bytes of the weights that the judge set."""
        self.uploads: dict[int, int] = {}
        """Sizes in bytes of storages that host code filled itself."""
        self.units: list[KernelSource] = []
        """Sources of the kernels that were launched so far."""
        self._unsent: list[dict[str, Any]] = []
        """Those that the executor does not know yet, as they came: of programs that were only looked at."""

    def __enter__(self) -> "Session":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both processes."""
        self._host.__exit__()
        self._executor.__exit__()
        os.close(self._memory)

    def load(self, source: str, arguments: list[Any], weight_seed: int) -> None:
        """Have the source loaded; the answer is `ready()`."""
        job = {"source": source, "arguments": arguments, "weight_seed": weight_seed, "strict": self._strict}
        self._host.send({"kind": "load"}, [pickle.dumps(job)])

    def ready(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Wait until ModelNew is built; returns type and shape of its parameters and buffers."""
        answer, _, _ = self._host.receive(0)
        if not isinstance(answer, StateAnswer):
            raise out_of_turn("the process answered out of turn")
        return answer.state

    def set_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Give the candidate's model the values of the weights named; the host code learns the names alone."""
        items: list[dict[str, Any]] = []
        payload: list[Any] = []
        offset = 0
        for number, tensor in enumerate(weights.values(), start=FIRST_WEIGHT):
            content = bytes_of(tensor)
            items.append({"storage": number, "form": form_of(tensor).model_dump(), "offset": offset})
            self.weight_bytes.append(content.nbytes)
            padding = -content.nbytes % _ALIGNMENT
            payload += [content, bytes(padding)]
            offset += content.nbytes + padding
        self._host.send({"kind": "weights", "names": list(weights)})
        self._executor.send({"kind": "begin", "strict": self._strict, "weights": items}, payload)

    def ask(self, inputs: list[Any], has_values: bool) -> None:
        """Have a forward call traced on inputs like these (tensors or their forms). Answers come in the order of the questions.

        `has_values`: host code that wants to know a value can be told.
        """
        self._asked.append(has_values)
        self._host.send({"kind": "trace", "has_values": has_values, "inputs": _items(inputs)})

    def put(self, inputs: list[Any]) -> None:
        """Put one input set before the executor."""
        size = bytes_needed(inputs)
        if self._mapping is None or len(self._mapping) < size:
            os.ftruncate(self._memory, size)
            self._mapping = mmap.mmap(self._memory, size) if size else None
        for value, offset in zip(inputs, _offsets(inputs), strict=True):
            if isinstance(value, torch.Tensor) and value.numel():
                assert self._mapping is not None
                content = bytes_of(value)
                self._mapping[offset : offset + content.nbytes] = content
        self._inputs = inputs

    def traced(self) -> tuple[TraceAnswer, dict[str, Any], bytearray]:
        """Wait for the next program, executing what its host code needs the values of: checked, and as it came."""
        has_values = self._asked.popleft()
        self.reads = []
        while True:
            answer, raw, payload = self._host.receive(_MAX_UPLOAD)
            if not isinstance(answer, TraceAnswer | ReadAnswer):
                raise out_of_turn("the process answered out of turn")
            self.units += answer.units
            self._unsent += raw["units"]
            self.uploads |= {item.storage: item.size for item in answer.commands if isinstance(item, Upload)}
            if isinstance(answer, TraceAnswer):
                return answer, raw, payload
            if not has_values:
                raise out_of_turn("the process asked for a value where there is none")
            self._allow_read(answer.view)
            self.execute(raw, payload, [], read=raw["view"])
            executed, _ = self.executed(0)
            self.has_read = True
            self._host.send({"kind": "value", "value": executed.value})

    def _allow_read(self, view: View) -> None:
        """Count a value that host code wants to know. Asked here, and not only in its own process: that may be edited."""
        self.reads.append(view)
        given = sum(_float_count(value) for value in self._inputs)
        if len(self.reads) > (min(MAX_HOST_READS, max(1, given // 2)) if given else MAX_HOST_READS):
            raise CandidateFailedError(
                Status.REJECTED,
                "library_compute",
                f"host code read {len(self.reads)} values in one call: results have to be computed by the kernels",
            )

    def repeated(self) -> tuple[dict[str, Any], bytearray]:
        """Wait for a program that was asked for on forms alone, unchecked: one that was checked already needs no more of it."""
        self._asked.popleft()
        return self._host.receive_unchecked(_MAX_UPLOAD)

    def checked(self, raw: dict[str, Any]) -> TraceAnswer:
        """Check such a program after all."""
        answer = self._host.check(raw)
        if not isinstance(answer, TraceAnswer):
            raise out_of_turn("the process answered out of turn")
        self.units += answer.units
        self._unsent += raw["units"]
        self.uploads |= {item.storage: item.size for item in answer.commands if isinstance(item, Upload)}
        return answer

    def execute(
        self, part: dict[str, Any], payload: bytearray, outputs: list[Any], read: Any = None, scrambled: bool = False
    ) -> None:
        """Have a part of a program executed; the answer is `executed()`. `outputs`: views to send back.

        `scrambled`: what each kernel writes is replaced by nonsense, to see what depends on it.
        """
        units, self._unsent = self._unsent, []
        self._executor.send(
            {
                "kind": "execute",
                "inputs": _items(self._inputs),
                "part": {"units": units, "commands": part["commands"]},
                "outputs": outputs,
                "read": read,
                "scrambled": scrambled,
            },
            [payload],
        )

    def executed(self, max_bytes: int) -> tuple[ExecutedAnswer, bytearray]:
        """Wait for the executor's answer and the bytes of the outputs asked for."""
        answer, _, payload = self._executor.receive(max_bytes + _SPARE_PAYLOAD)
        assert isinstance(answer, ExecutedAnswer)
        self.wrote_weights |= answer.wrote_weights
        return answer, payload

    def changed_inputs(self) -> set[int]:
        """Return the indices of inputs whose shared memory no longer holds what was put there."""
        return {
            index
            for index, (value, offset) in enumerate(zip(self._inputs, _offsets(self._inputs), strict=True))
            if isinstance(value, torch.Tensor)
            and value.numel()
            and self._mapping is not None
            and not same_bytes(tensor_from(memoryview(self._mapping), form_of(value), offset), value)
        }


def _float_count(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else 0


def _items(inputs: list[Any]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for value, offset in zip(inputs, _offsets(inputs), strict=True):
        form = form_of(value) if isinstance(value, torch.Tensor) else value
        is_form = isinstance(form, TensorForm)
        items.append({"form": form.model_dump(), "offset": offset} if is_form else {"value": value})
    return items


def _offsets(inputs: list[Any]) -> list[int]:
    offsets = [0]
    for value in inputs:
        offsets.append(offsets[-1] + _size(value))
    return offsets[:-1]


def bytes_needed(inputs: list[Any]) -> int:
    """Return the size of shared memory that an input set takes."""
    return sum(_size(value) for value in inputs)


def _size(value: Any) -> int:
    form = form_of(value) if isinstance(value, torch.Tensor) else value
    return -(-form.nbytes // _ALIGNMENT) * _ALIGNMENT if isinstance(form, TensorForm) else 0
