"""The judge's side of the conversation with one candidate's process. See kernels_eval.candidate for the other side."""

import mmap
import os
import pickle
import signal
from typing import Any

import torch
from pydantic import ValidationError

from kernels_eval.answers import ANSWER, Answer, FailedAnswer, RunAnswer, StateAnswer
from kernels_eval.confinement import Limits
from kernels_eval.launches import Launch
from kernels_eval.nursery import Nursery
from kernels_eval.reference import same_bytes
from kernels_eval.tensors import TensorForm, bytes_of, form_of, tensor_from
from kernels_eval.verdict import Status
from kernels_eval.wire import ChannelClosedError, MalformedFrameError, receive_frame, send_frame

_ALIGNMENT = 256
_SPARE_PAYLOAD = 1 << 20


class CandidateFailedError(Exception):
    """The candidate is done for, and this is the verdict on it."""

    def __init__(self, status: Status, category: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.category = category
        self.message = message


class Conversation:
    """One candidate, from its start to its end. A context manager: leaving it kills the candidate."""

    def __init__(self, nursery: Nursery, limits: Limits) -> None:
        self._nursery = nursery
        self._limits = limits
        self._memory = os.memfd_create("inputs")
        self._mapping: mmap.mmap | None = None
        self._ended = False
        self._channel = nursery.start(self._memory, limits)

    def __enter__(self) -> "Conversation":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the candidate."""
        self._channel.close()
        if not self._ended:
            self._nursery.stop()
        os.close(self._memory)

    def load(self, source: str, arguments: list[Any], weight_seed: int, strict: bool) -> None:
        """Have the source loaded; the answer is `ready()`."""
        job = {"source": source, "arguments": arguments, "weight_seed": weight_seed, "strict": strict}
        self._send({"kind": "load"}, [pickle.dumps(job)])

    def ready(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Wait until ModelNew is built; returns type and shape of its parameters and buffers."""
        answer, _ = self._receive(0)
        if not isinstance(answer, StateAnswer):
            raise CandidateFailedError(Status.REJECTED, "malformed_answer", "the process answered out of turn")
        return answer.state

    def set_weights(self, weights: dict[str, torch.Tensor], input_bytes: int) -> None:
        """Copy weights by name into the candidate's model, and set the size of the shared input memory."""
        os.ftruncate(self._memory, input_bytes)
        self._mapping = mmap.mmap(self._memory, input_bytes) if input_bytes else None
        items: list[dict[str, Any]] = []
        payload: list[memoryview] = []
        offset = 0
        for name, tensor in weights.items():
            content = bytes_of(tensor)
            items.append({"name": name, "form": form_of(tensor).model_dump(), "offset": offset})
            payload.append(content)
            offset += content.nbytes
        self._send({"kind": "weights", "weights": items}, payload)

    def run(self, inputs: list[Any]) -> None:
        """Put one input set before the candidate; the answer is `outputs()`."""
        items: list[dict[str, Any]] = []
        for value, offset in zip(inputs, _offsets(inputs), strict=True):
            if isinstance(value, torch.Tensor):
                form = form_of(value)
                if form.nbytes:
                    assert self._mapping is not None
                    self._mapping[offset : offset + form.nbytes] = bytes_of(value)
                items.append({"form": form.model_dump(), "offset": offset})
            else:
                items.append({"value": value})
        self._send({"kind": "run", "inputs": items})

    def grids(self, inputs: list[Any]) -> list[Launch]:
        """Ask what would be launched on inputs like these (tensors or their forms; their content does not count)."""
        size = bytes_needed(inputs)
        os.ftruncate(self._memory, max(size, os.fstat(self._memory).st_size))
        items = [
            {"form": value.model_dump(), "offset": offset} if isinstance(value, TensorForm) else {"value": value}
            for value, offset in zip(inputs, _offsets(inputs), strict=True)
        ]
        self._send({"kind": "measure", "inputs": items})
        answer, _ = self._receive(0)
        return list(answer.launches) if isinstance(answer, RunAnswer) else []

    def outputs(self, max_bytes: int) -> tuple[RunAnswer, list[torch.Tensor | None]]:
        """Wait for the outputs of a run: the answer, and one tensor for each output (None: it is no tensor)."""
        answer, payload = self._receive(max_bytes + _SPARE_PAYLOAD)
        if not isinstance(answer, RunAnswer):
            raise CandidateFailedError(Status.REJECTED, "malformed_answer", "the process answered out of turn")
        tensors: list[torch.Tensor | None] = []
        offset = 0
        for output in answer.outputs:
            if output.kind == "other":
                tensors.append(None)
                continue
            form = TensorForm(dtype=output.dtype, shape=output.shape)
            if offset + form.nbytes > len(payload):
                raise CandidateFailedError(Status.REJECTED, "malformed_answer", "fewer bytes than the outputs have")
            tensors.append(tensor_from(payload, form, offset).clone())
            offset += form.nbytes
        return answer, tensors

    def changed_inputs(self, inputs: list[Any]) -> set[int]:
        """Return the indices of inputs whose shared memory no longer holds what was put there."""
        return {
            index
            for index, (value, offset) in enumerate(zip(inputs, _offsets(inputs), strict=True))
            if isinstance(value, torch.Tensor)
            and value.numel()
            and self._mapping is not None
            and not same_bytes(tensor_from(memoryview(self._mapping), form_of(value), offset), value)
        }

    def _send(self, header: dict[str, Any], payload: list[Any] | None = None) -> None:
        try:
            send_frame(self._channel, header, payload or [])
        except (ChannelClosedError, TimeoutError) as error:
            raise self._autopsy() from error

    def _receive(self, max_payload: int) -> tuple[Answer, bytearray]:
        try:
            header, payload = receive_frame(self._channel, max_payload)
            answer = ANSWER.validate_python(header)
        except (ChannelClosedError, TimeoutError) as error:
            raise self._autopsy() from error
        except (MalformedFrameError, ValidationError) as error:
            raise CandidateFailedError(
                Status.REJECTED, "malformed_answer", "the process sent something else than its results"
            ) from error
        if isinstance(answer, FailedAnswer):
            raise CandidateFailedError(Status(answer.status), answer.category, answer.message)
        return answer, payload

    def _autopsy(self) -> CandidateFailedError:
        """Say why there was no answer."""
        ending = self._nursery.stop()
        self._ended = True
        if ending.cause == "timeout":
            return CandidateFailedError(Status.TIMEOUT, "timeout", f"ran longer than {self._limits.wall_s:g} s")
        if ending.cause == "signal":
            name = signal.Signals(ending.code).name if ending.code in set(signal.Signals) else str(ending.code)
            return CandidateFailedError(Status.RUNTIME_ERROR, "crashed", f"the process was ended by {name}")
        return CandidateFailedError(Status.RUNTIME_ERROR, "no_answer", "the process ended without an answer")


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
