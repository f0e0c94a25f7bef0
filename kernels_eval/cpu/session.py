"""CPU worker: its side of the session with one candidate's two processes.

The tracing process (kernels_eval.tracing.process) runs host code and turns shapes into programs. The interpreter
process (kernels_eval.interpreter.process) runs programs on values. They do not communicate with each other: every
message passes through this module and is checked.
"""

import mmap
import os
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernels_eval.correctness.allowed_operators import MAX_HOST_INTEGERS, MAX_HOST_READS, half_of_inputs
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.input_layout import bytes_needed, items, offsets_of
from kernels_eval.cpu.reach import reached
from kernels_eval.cpu.submitted_file import check_kernel, submitted_file
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.inputs import same_bytes
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.child import CandidateFailedError, Child, out_of_turn
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import INTERPRETER_ANSWER, ExecutedAnswer, StateAnswer
from kernels_eval.sandbox.tensor_bytes import DTYPES, bytes_of, form_of, tensor_from
from kernels_eval.trace.schema import (
    FIRST_WEIGHT,
    TRACING_ANSWER,
    Command,
    Free,
    KernelSource,
    ReadAnswer,
    Synchronise,
    TraceAnswer,
    Upload,
    View,
)
from kernels_eval.verdict import Status

Configurations = Mapping[int, int]
"""Autotuners, by number, and the place of a configuration in the list of each."""
_ALIGNMENT, _WEIGHT_GAP = 256, 1 << 12
"""Bytes; the gap lies between two weights, as that between two inputs (kernels_eval.cpu.input_layout)."""
_TRACING_SHARE = 0.5
"""CPU time of the tracing process, as a share of the candidate's wall time."""
_STEP_SHARE, _LEAST_STEP_S = 0.1, 0.3
"""CPU time of the tracing process from one operator to the next, as a share of the same, and the least limit on it: a
hundred times what a whole call of a small model takes."""
_SPARE_PAYLOAD = 1 << 20
_MAX_UPLOAD = 1 << 31


class Session:
    """Context manager for the session with one candidate. Its exit kills both processes."""

    def __init__(
        self,
        tracing_server: ForkServer,
        interpreter_server: ForkServer,
        limits: Limits,
        strict: bool,
        order: int,
        configurations: Configurations | None = None,
        is_portable: bool = False,
        dot_precision: str = "tf32",
    ) -> None:
        """Start the tracing process; the interpreter process follows once the candidate is loaded (`ready`).

        `order`: seed of the order in which the programs of each launch run. `configurations`: those of autotuned
        kernels, where a call does not name others. `is_portable`: lanes that no device has to fill hold a pattern.
        `dot_precision`: that of products of float32 whose kernel names none.
        """
        self.is_poisoned = is_portable
        """Lanes that a load leaves undefined hold a pattern, else zero."""
        self._configurations = configurations or {}
        self.strict = strict
        self._order = order
        self.memory_mb = limits.memory_mb
        """Memory of each process of the candidate."""
        self._dot_precision = dot_precision
        self._memory = os.memfd_create("inputs")
        self._mapping: mmap.mmap | None = None
        # The tracing process does not get the inputs' memory: it could map it and compute.
        # It computes nothing. Half of the time is more than it needs, and it bounds host code that loops forever.
        step_cpu_s = max(_LEAST_STEP_S, _STEP_SHARE * limits.wall_s)
        tracing_limits = replace(limits, cpu_s=_TRACING_SHARE * limits.wall_s, step_cpu_s=step_cpu_s)
        self._tracing = Child(tracing_server, tracing_limits, None, TRACING_ANSWER)
        self._start_interpreter = lambda: Child(interpreter_server, limits, self._memory, INTERPRETER_ANSWER)
        self._interpreter: Child
        self._step_cpu_s = step_cpu_s
        self._children = [self._tracing]
        self.inputs: list[Any] = []
        """The input set that `put` has shared last, as it was then."""
        self._asked: deque[bool] = deque()
        self.has_run = False
        """True once a part of a program was run: what follows may depend on values and on the order of programs."""
        self.has_read = False
        """True once host code has read a value."""
        self.reads: list[View] = []
        """Values that host code read in the last call that had values."""
        self.parts: list[tuple[dict[str, Any], bytearray]] = []
        """Raw parts of the last program, with their payloads: each but the last one ends with a value that is read."""
        self.before_reads: list[Launch] = []
        """Launches of the last call that had values, up to the last value that host code read."""
        self.wrote_weights = False
        """True once a kernel has written to a weight or buffer that the judge set."""
        self.undefined_line: int | None = None
        """Line of a load that left lanes undefined, once there was one."""
        self.has_rounded_products = False
        """True once a product of float32 was in TF32 whose kernel names no precision."""
        self.cpu_s = 0.0
        """CPU time of the last part of a program that ran."""
        self.weight_bytes: list[int] = []
        """Sizes in bytes of the weights that the judge set."""
        self.uploads: dict[int, int] = {}
        """Sizes in bytes of storages that host code uploaded, by number."""
        self.kernels: list[KernelSource] = []
        """Sources of the kernels launched so far."""
        self._source = ""
        self._unsent: list[dict[str, Any]] = []
        """Sources not yet sent to the interpreter process, from programs that were traced but not run."""

    def __enter__(self) -> "Session":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End both processes."""
        for child in self._children:
            child.__exit__()
        os.close(self._memory)

    def load(self, source: str, arguments: list[Any], weight_seed: int, nesting: list[Any] | None) -> None:
        """Send the source to be loaded; the answer is `ready()`. Raises CandidateFailedError if it reaches too far."""
        if (found := reached(source)) is not None:
            raise CandidateFailedError(
                Status.REJECTED, ErrorCategory.REACHES_INTO_JUDGE, f"the file uses {found}", True
            )
        self._source = source
        job = {
            "source": source,
            "arguments": arguments,
            "weight_seed": weight_seed,
            "nesting": nesting,
            "strict": self.strict,
            "step_cpu_s": self._step_cpu_s,
        }
        self._tracing.send({"kind": "load"}, [pickle.dumps(job)])

    def ready(self) -> StateAnswer:
        """Wait until ModelNew is built; returns dtype and shape of its parameters, buffers and plain tensors."""
        answer, _, _ = self._tracing.receive(0)
        if not isinstance(answer, StateAnswer):
            raise out_of_turn("the process answered out of turn")
        self._interpreter = self._start_interpreter()  # a candidate that does not load costs one process, not two
        self._children.append(self._interpreter)
        return answer

    def set_weights(self, given: GivenWeights, renewable: bool = False) -> None:
        """Send the values of named weights to the interpreter process, and their names alone to the tracing process.

        `renewable`: they may change later (`renew_weights`).
        """
        weights = given.values
        items, payload = _packed(dict(enumerate(weights.values(), start=FIRST_WEIGHT)))
        self.weight_bytes += [tensor.numel() * tensor.element_size() for tensor in weights.values()]
        as_registered = {name: name in given.as_registered for name in weights}
        self._tracing.send({"kind": "weights", "as_registered": as_registered})
        self._interpreter.send(
            {
                "kind": "begin",
                "strict": self.strict,
                "weights": items,
                "order": self._order,
                "renewable": renewable,
                "dot_precision": self._dot_precision,
            },
            payload,
        )

    def renew_weights(self, weights: Mapping[int, torch.Tensor]) -> None:
        """Send other values of some weights, by number, and of what host code has copied from them.

        The session must be `renewable`; the next request for a trace has to say so (`renewed`).
        """
        items, payload = _packed(weights)
        self._interpreter.send({"kind": "renew", "weights": items}, payload)

    def ask(
        self,
        inputs: list[Any],
        has_values: bool,
        configurations: Configurations | None = None,
        tried: Configurations | None = None,
        ahead: int = -1,
        again: bool = False,
        renewed: bool = False,
    ) -> None:
        """Request the trace of a forward call. Answers come in the order of requests.

        `inputs`: tensors, or only their forms. `has_values`: True if the judge can answer when host code reads a value.
        `configurations`: those of autotuned kernels. `tried`: ones to launch before them on the same tensors.
        `ahead`: calls by which numbers that host code counts up are advanced before; 0: such numbers are looked for,
        -1: they are not. `again`: from this call on, use a second model with the same weights. `renewed`: the weights
        have changed in place.
        """
        chosen = self._configurations if configurations is None else configurations
        self._asked.append(has_values)
        self._tracing.send(
            {
                "kind": "trace",
                "has_values": has_values,
                "inputs": items(inputs),
                "configurations": {str(tuner): place for tuner, place in chosen.items()},
                "tried": {str(tuner): place for tuner, place in (tried or {}).items()},
                "ahead": ahead,
                "again": again,
                "renewed": renewed,
            }
        )

    def put(self, inputs: list[Any]) -> None:
        """Copy one input set to the memory shared with the interpreter process."""
        size = bytes_needed(inputs)
        if self._mapping is None or len(self._mapping) < size:
            os.ftruncate(self._memory, size)
            self._mapping = mmap.mmap(self._memory, size) if size else None
        for value, offset in zip(inputs, offsets_of(inputs), strict=True):
            if isinstance(value, torch.Tensor) and value.numel():
                assert self._mapping is not None
                content = bytes_of(value)
                self._mapping[offset : offset + content.nbytes] = content
        self.inputs = inputs

    def traced(self) -> tuple[TraceAnswer, dict[str, Any], bytearray]:
        """Wait for the next program; returns it checked, and what is left of it to run: raw, with its payload.

        Runs parts of it if host code reads values.
        """
        has_values = self._asked.popleft()
        self.reads, self.before_reads, self.parts = [], [], []
        earlier: tuple[Command, ...] = ()
        while True:
            answer, raw, payload = self._tracing.receive(_MAX_UPLOAD)
            if not isinstance(answer, TraceAnswer | ReadAnswer):
                raise out_of_turn("the process answered out of turn")
            self._take(answer)
            self.parts.append((raw, payload))
            if isinstance(answer, TraceAnswer):
                whole = answer.model_copy(update={"commands": (*earlier, *answer.commands)}) if earlier else answer
                return whole, raw, payload
            if not has_values:
                raise out_of_turn("the process asked for a value in a call without values")
            if not _ends_with_a_read(answer.commands):
                raise out_of_turn("the process read a value that its program does not read")
            earlier += answer.commands
            self._allow_read(answer.view)
            self.execute(raw, payload, [], read=raw["view"])
            executed, _ = self.executed(0)
            self.before_reads += executed.launches
            self.has_read = True
            self._tracing.send({"kind": "value", "value": executed.value})

    def _allow_read(self, view: View) -> None:
        """Count what host code reads. Checked here too, because the candidate can modify its own process."""
        is_float = DTYPES[view.dtype].is_floating_point
        total = len(self.reads) + view.numel
        of_its_kind = view.numel + sum(DTYPES[known.dtype].is_floating_point is is_float for known in self.reads)
        floats, elements = (sum(map(count, self.inputs)) for count in (_float_count, _element_count))
        half = half_of_inputs(floats, elements)
        if total > half or of_its_kind > (MAX_HOST_READS if is_float else MAX_HOST_INTEGERS):
            raise CandidateFailedError(
                Status.REJECTED,
                ErrorCategory.LIBRARY_COMPUTE,
                f"host code read {total} values in one call, and of these inputs may read "
                f"{min(half, MAX_HOST_INTEGERS)} whole numbers or {min(half, MAX_HOST_READS)} others: results have to "
                "be computed by the kernels",
            )
        self.reads += _elements_of(view)

    def repeated(self) -> tuple[dict[str, Any], bytearray]:
        """Wait for a program requested on shapes alone. It is unchecked: most equal one that was already checked."""
        self._asked.popleft()
        return self._tracing.receive_unchecked(_MAX_UPLOAD)

    def checked(self, raw: dict[str, Any]) -> TraceAnswer:
        """Check a program that `repeated()` returned."""
        answer = self._tracing.check(raw)
        if not isinstance(answer, TraceAnswer):
            raise out_of_turn("the process answered out of turn")
        self._take(answer)
        return answer

    def _take(self, answer: TraceAnswer | ReadAnswer) -> None:
        """Note the kernels and uploads of a program. Raises CandidateFailedError for kernels of another text."""
        for kernel in answer.kernels:
            check_kernel(submitted_file(self._source), kernel, {known.number: known for known in self.kernels})
            self.kernels.append(kernel)
            self._unsent.append(kernel.model_dump())
        self.uploads |= {item.storage: item.size for item in answer.commands if isinstance(item, Upload)}

    def execute(
        self,
        part: dict[str, Any],
        payload: bytearray,
        outputs: list[Any],
        read: Any = None,
        scrambled: bool = False,
        ahead: int = 0,
    ) -> None:
        """Send a part of a program to be run; the answer is `executed()`. `outputs`: views to send back.

        `scrambled`: replace the values that each kernel writes by random ones, to find the results that depend on them.
        `ahead`: calls by which numbers that kernels count up are advanced before.
        """
        kernels, self._unsent = self._unsent, []
        self._interpreter.send(
            {
                "kind": "execute",
                "inputs": items(self.inputs),
                "part": {"kernels": kernels, "commands": part["commands"]},
                "outputs": outputs,
                "read": read,
                "scrambled": scrambled,
                "ahead": ahead,
                "poisoned": self.is_poisoned,
            },
            [payload],
        )

    def executed(self, max_bytes: int) -> tuple[ExecutedAnswer, bytearray]:
        """Wait for the interpreter process's answer and the bytes of the requested outputs."""
        self.has_run = True
        answer, _, payload = self._interpreter.receive(max_bytes + _SPARE_PAYLOAD)
        assert isinstance(answer, ExecutedAnswer)
        self.wrote_weights |= answer.wrote_weights
        self.undefined_line = answer.undefined_line if self.undefined_line is None else self.undefined_line
        self.has_rounded_products |= answer.rounded_products
        self.cpu_s = answer.cpu_s
        return answer, payload

    def changed_inputs(self) -> dict[int, torch.Tensor]:
        """Return the inputs whose values in shared memory have changed since `put()`, by index. They share it."""
        found: dict[int, torch.Tensor] = {}
        for index, (value, offset) in enumerate(zip(self.inputs, offsets_of(self.inputs), strict=True)):
            if isinstance(value, torch.Tensor) and value.numel() and self._mapping is not None:
                now = tensor_from(memoryview(self._mapping), form_of(value), offset)
                if not same_bytes(now, value):
                    found[index] = now
        return found


def _packed(weights: Mapping[int, torch.Tensor]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the places of weights, by number, in a payload, and the payload."""
    items: list[dict[str, Any]] = []
    payload: list[Any] = []
    offset = 0
    for number, tensor in weights.items():
        content = bytes_of(tensor)
        items.append({"storage": number, "form": form_of(tensor).model_dump(), "offset": offset})
        padding = -content.nbytes % _ALIGNMENT + _WEIGHT_GAP
        payload += [content, bytes(padding)]
        offset += content.nbytes + padding
    return items, payload


def _ends_with_a_read(commands: Sequence[Command]) -> bool:
    last = next((command for command in reversed(commands) if not isinstance(command, Free)), None)
    return isinstance(last, Synchronise) and last.reads


def _elements_of(view: View) -> list[View]:
    """Return each element of a view as a view of its own."""
    places = [view.offset]
    for size, stride in zip(view.shape, view.strides, strict=True):
        places = [place + stride * index for place in places for index in range(size)]
    return [view.model_copy(update={"shape": (), "strides": (), "offset": place}) for place in places]


def _element_count(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _float_count(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) and value.dtype.is_floating_point else 0
