"""Rounds of calls in the candidate's process on a GPU: gated, profiled or plain; outputs go to the shared memory.

In a gated round the calls are launched while the gate is closed (gpu.device.gate): before the inputs arrive. The
outputs are allocated in their slots then, where that is possible, so that no copy is timed: `OutputSlots` learns from
the plain rounds which allocation of a call becomes which output.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels_eval.backends import Backend
from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError, half_of_inputs
from kernels_eval.correctness.outputs import flat
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard
from kernels_eval.gpu.candidate.warm_up import Instruments
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaError
from kernels_eval.gpu.device.gate import Gate
from kernels_eval.gpu.device.shared_memory import MappedMemory, apart, copy_tensor, view
from kernels_eval.sandbox.candidate_source import CandidateError, describe
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm, form_of


@dataclass
class Rounds:
    """Makes rounds of calls of one model."""

    instruments: Instruments
    memory: MappedMemory
    gate: Gate | None
    """None if device memory cannot be shared."""
    model: Any
    guard: OperatorGuard
    """In force in every call."""
    backend: Backend
    module: Any = None
    """The candidate's; None for a placeholder."""
    _header: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _calls: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]], init=False)
    _outcomes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]], init=False)
    _learned: dict[int, int] = field(default_factory=dict[int, int], init=False)
    """Number of the allocation within a call that becomes an output, by output."""
    _tell: Callable[[str], None] = field(default=lambda _: None, init=False)

    def prepare(self, header: dict[str, Any]) -> None:
        """Prepare everything but the values of the inputs. In a gated round that is to launch all calls.

        Raises CandidateError if a call fails.
        """
        self._header = header
        self._outcomes = []
        self._calls = [self._call(call, header["poison"]) for call in header["calls"]]
        if header["gated"]:
            assert self.gate is not None
            self.instruments.synchronize()
            if header["profiled"]:
                self.instruments.profiler.begin()
            self._launch(self.gate)
        elif header["serial"]:
            assert self.gate is not None
            self.gate.page.close()

    def run(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """Make the round; tell `done` once the outputs are in place. Raises CandidateError if a call fails."""
        header = self._header
        self._tell = tell if header["tells"] else _tell_nobody
        answer: dict[str, Any] = {"kind": "round"}
        try:
            if header["gated"]:
                self.instruments.synchronize()
                if header["profiled"]:
                    answer["kernels"] = self.instruments.profiler.end()
            else:
                self.memory.pull(header["nbytes"])
                self._work(answer)
                self.memory.push(header["nbytes"])
        except CudaError as error:
            raise device_failure(str(error)) from error
        tell("done")
        if self.guard.violations:
            used = ", ".join(sorted(set(self.guard.violations))[:5])
            raise CandidateError("rejected", ErrorCategory.LIBRARY_COMPUTE, f"used {used}")
        answer["calls"] = self._outcomes
        if header["resources"]:
            answer["resources"] = self.backend.resources(self.module)
        return answer

    def _work(self, answer: dict[str, Any]) -> None:
        """Make the calls of a round without a gate."""
        header = self._header
        if header["timed"]:
            if header["profiled"]:
                answer["kernels"] = self.instruments.profiler.records(self._make_all_timed_calls)
            else:
                self._make_all_timed_calls()
            self.instruments.synchronize()
        elif header["suppressed"]:
            with self.backend.suppressed():
                self._make_checked_calls()
        elif header["profiled"]:
            answer["kernels"] = self.instruments.profiler.records(self._make_checked_calls)
        else:
            answer["unjoined_s"] = self._make_checked_calls()

    def _make_all_timed_calls(self) -> None:
        if self._header["serial"]:
            assert self.gate is not None
            self._launch(self.gate)
        else:
            self._make_timed_calls(range(len(self._calls)))

    def _launch(self, gate: Gate) -> None:
        """Launch all calls behind a gate, or in groups of one, each behind its own or when the host sees its turn."""
        groups: int = self._header["groups"]
        for group in range(1, groups + 1):
            if self._header["gated"]:
                gate.close(self._header["held"] and group == 1, group)
            else:
                gate.page.wait_until_open(group)
            first, end = (0, len(self._calls)) if groups == 1 else (group - 1, min(group, len(self._calls)))
            self._make_timed_calls(range(first, end))
            gate.end(group)

    def _make_timed_calls(self, indices: range) -> None:
        """Make some calls once, outputs in their slots where possible."""
        try:
            for index in indices:
                self.guard.use_slots(self._slots(index))
                self._take_outputs(index, self._calls[index](), learns=False)
        finally:
            self.guard.use_slots({})

    def _make_checked_calls(self) -> float:
        """Make every call once; returns the shortest time for which other streams outlasted the default one."""
        unjoined: list[float] = []
        for index, call in enumerate(self._calls):
            result = call()
            if index == 0:
                self._tell("launched")
            self._take_outputs(index, result, learns=True)  # on the default stream: not what another one has yet to do
            unjoined.append(self.instruments.unjoined_s())
            del result  # its memory is reused
        self.instruments.synchronize()
        self.guard.copies.forget_unused()
        self.instruments.release_unused_memory()
        return min(unjoined, default=0.0)

    def _learn(self, outputs: list[Any]) -> None:
        """Note which allocations of this call became its outputs."""
        self._learned = {}
        for index, output in enumerate(outputs):
            if isinstance(output, torch.Tensor) and _fills_its_storage(output):
                number = self.guard.allocations.get(output.untyped_storage().data_ptr())
                if number is not None:
                    self._learned[index] = number

    def _slots(self, call: int) -> dict[int, torch.Tensor]:
        """Return the slots of a call's outputs by the number of the allocation that becomes the output."""
        slots: list[dict[str, int]] = self._header["calls"][call]["outputs"]
        return {
            number: self.memory.tensor[slots[index]["offset"] : slots[index]["offset"] + slots[index]["nbytes"]]
            for index, number in self._learned.items()
            if index < len(slots)
        }

    def _call(self, call: dict[str, Any], poison: bool) -> Callable[[], Any]:
        memory = self.memory.tensor
        inputs = [
            apart(memory, TensorForm(**item["form"]), item["offset"]) if "form" in item else item["value"]
            for item in call["inputs"]
        ]
        model, guard, backend = self.model, self.guard, self.backend
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        floats = sum(value.numel() for value in tensors if value.dtype.is_floating_point)
        most_reads = half_of_inputs(floats, sum(value.numel() for value in tensors))

        use_default_stream = self.instruments.use_default_stream

        def forward() -> Any:
            guard.start(poison, most_reads)
            use_default_stream()
            try:
                with guard:
                    return model(*inputs)
            except BaseException as error:
                raise _failure(error, guard, backend) from error
            finally:
                use_default_stream()

        return forward

    def _take_outputs(self, call: int, result: Any, learns: bool) -> None:
        """Copy the outputs of a call to their slots, unless they lie there, and describe them."""
        slots: list[dict[str, int]] = self._header["calls"][call]["outputs"]
        try:
            outputs, structure = flat(result)
        except Exception as error:
            raise CandidateError("runtime_error", ErrorCategory.EXCEPTION, describe(error)) from error
        if learns:
            self._learn(outputs)
        forms: list[dict[str, Any]] = []
        for index, output in enumerate(outputs):
            unsupported = _unsupported_type(output)
            if unsupported is not None:
                forms.append({"kind": "other", "type": unsupported[:100]})
                continue
            expanded = any(stride == 0 and size > 1 for stride, size in zip(output.stride(), output.shape, strict=True))
            form = form_of(output)
            forms.append({**form.model_dump(), "expanded": expanded})
            if index < len(slots) and 0 < form.nbytes == slots[index]["nbytes"]:
                slot = view(self.memory.tensor, form, slots[index]["offset"])
                if output.data_ptr() != slot.data_ptr() or not output.is_contiguous():
                    in_memory = output.untyped_storage().data_ptr() == slot.untyped_storage().data_ptr()
                    copy_tensor(slot, output.clone() if in_memory else output)
        self._outcomes.append({"structure": structure, "outputs": forms})


def _tell_nobody(_: str) -> None:
    """Take what is told, where nobody has asked for it."""


def _fills_its_storage(output: torch.Tensor) -> bool:
    """True for a contiguous tensor that is the whole of its storage."""
    size = output.numel() * output.element_size()
    return size > 0 and output.is_contiguous() and output.untyped_storage().nbytes() == size


def _unsupported_type(output: Any) -> str | None:
    """Describe an output that is no plain tensor on the device; None if it is one."""
    if not isinstance(output, torch.Tensor):
        return type(output).__name__
    if type(output) not in (torch.Tensor, torch.nn.Parameter):
        return f"{type(output).__name__}, a subclass of Tensor"
    if output.device.type != cuda_driver.DEVICE:
        return f"tensor on {output.device.type}"
    if output.dtype not in NAMES or output.layout is not torch.strided:
        return f"{output.layout} tensor of {output.dtype}"
    return None


def device_failure(text: str) -> CandidateError:
    """Return the failure for a kernel that the device stopped."""
    lower = text.lower()
    outside = any(word in lower for word in ("illegal memory", "illegal_address", "misaligned"))
    return CandidateError("runtime_error", ErrorCategory.OUT_OF_BOUNDS if outside else ErrorCategory.DEVICE_FAULT, text)


def _failure(error: BaseException, guard: OperatorGuard, backend: Backend) -> CandidateError:
    """Return the failure to report for an exception that a call raised."""
    if isinstance(error, ForbiddenOperatorError):
        return CandidateError("rejected", ErrorCategory.LIBRARY_COMPUTE, str(error))
    if guard.violations:
        return CandidateError("rejected", ErrorCategory.LIBRARY_COMPUTE, ", ".join(guard.violations[:5]))
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return CandidateError("runtime_error", ErrorCategory.OUT_OF_MEMORY, describe(error))
    if isinstance(error, CandidateError):
        return error
    not_compiled = backend.compile_failure(error)
    if not_compiled is not None:
        return not_compiled
    if "CUDA error" in str(error) or "Triton Error [CUDA]" in str(error):
        return device_failure(describe(error))
    return CandidateError("runtime_error", ErrorCategory.EXCEPTION, describe(error))
