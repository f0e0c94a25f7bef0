"""Judge's side of the session with a candidate's process on a GPU (kernels_eval.gpu.candidate), in the judge's worker.

The clock is here: a round is timed from the moment at which its inputs have arrived in the shared memory to the answer,
and only what lies in the memory right after counts. Every answer is validated here before the judge reads it.
"""

import pickle
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter

from kernels_eval.errors import InfrastructureError
from kernels_eval.frozen import FrozenModel
from kernels_eval.gpu.profiling import KernelRecord
from kernels_eval.gpu.shared_memory import SharedCalls
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import FailedAnswer, OutputForm, StateAnswer
from kernels_eval.sandbox.tensor_bytes import bytes_of, form_of
from kernels_eval.verdict import Resources

_MAX_PAYLOAD = 1 << 20
Milliseconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]


class CallOutputs(FrozenModel):
    """Outputs of one call. Their contents lie in the shared device memory, in slots of the expected forms."""

    structure: Annotated[str, Field(max_length=20_000)]
    """Structure of the result, as described by kernels_eval.correctness.outputs."""
    outputs: Annotated[tuple[OutputForm, ...], Field(max_length=256)]


class RoundAnswer(FrozenModel):
    """Outputs of every call in one round, and observations made beside them."""

    kind: Literal["round"]
    calls: Annotated[tuple[CallOutputs, ...], Field(max_length=256)]
    device_ms: Annotated[tuple[Milliseconds, ...], Field(max_length=256)] = ()
    """Each call by device events."""
    enqueue_s: Seconds = 0.0
    """Host time to enqueue one call (median)."""
    unjoined_s: Seconds = 0.0
    """Time for which side streams went on after the default stream was done (median); 0 in a round not synchronised."""
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

    pause_s: float = 0.0
    synchronised: bool = False
    poison: bool = True
    """Fill fresh memory with NaN (costs device time)."""
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


class Session:
    """One candidate, from its start to its end. A context manager: leaving it kills the candidate."""

    def __init__(self, fork_server: ForkServer, limits: Limits, descriptor: int) -> None:
        """`descriptor`: the file that a candidate's process may map."""
        self._child = Child(fork_server, limits, descriptor, CANDIDATE_ANSWER)

    def __enter__(self) -> "Session":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the candidate, and wait for that: the next one needs the device and the shared memory to itself."""
        self._child.stop()

    def start(self, job: dict[str, Any]) -> None:
        """Hand the job over. No code of the candidate runs yet: a failure is a fault of the machine."""
        try:
            self._child.send({"kind": "start"}, [pickle.dumps(job)])
            self._expect("started")
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a process for candidates did not come up: {failed.message}") from failed

    def calibrate(self, calls: SharedCalls, request: RoundRequest, wall_s: float) -> Round:
        """Have a round made with a placeholder that fills outputs of the same forms: between `start` and `load`."""
        try:
            placeholder = [form.model_dump() for form in calls.output_forms]
            return self._round(calls, request, wall_s, {"placeholder": placeholder})
        except CandidateFailedError as failed:
            raise InfrastructureError(f"a round without a candidate failed: {failed.message}") from failed

    def load(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Have the candidate's source executed; returns type and shape of its parameters and buffers."""
        self._child.send({"kind": "load"})
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
        """Have one round made, in `wall_s` at most; raises CandidateFailedError if it fails."""
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

    def _receive(self) -> CandidateAnswer:
        answer: CandidateAnswer = self._child.receive(_MAX_PAYLOAD)[0]
        return answer
