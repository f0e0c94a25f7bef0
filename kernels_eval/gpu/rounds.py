"""Rounds of calls in the candidate's process on a GPU: timed or profiled, outputs copied to the shared memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels_eval.backends import Backend
from kernels_eval.compile.triton import compiler_message
from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.correctness.outputs import flat
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaError
from kernels_eval.gpu.operator_guard import OperatorGuard
from kernels_eval.gpu.shared_memory import MappedMemory, copy_tensor, view
from kernels_eval.gpu.warm_up import Instruments
from kernels_eval.sandbox.candidate_source import CandidateError, describe
from kernels_eval.sandbox.tensor_bytes import DTYPES, NAMES, TensorForm, form_of

_COMPILER_ERRORS = frozenset(
    {
        "CompilationError",
        "CompileTimeAssertionFailure",
        "UnsupportedLanguageConstruct",
        "OutOfResources",
        "PTXASError",
    }
)
"""Classes of Triton, by name: they lie in modules that Triton imports itself when it compiles."""


class PlaceholderModel:
    """Stands in for a candidate that is not loaded yet: fills outputs of the given forms."""

    def __init__(self, output_forms: list[TensorForm]) -> None:
        self._forms = output_forms

    def __call__(self, *_: Any) -> tuple[torch.Tensor, ...]:
        """Return fresh outputs."""
        return tuple(
            torch.ones(form.shape, dtype=DTYPES[form.dtype], device=cuda_driver.DEVICE) for form in self._forms
        )


@dataclass
class Rounds:
    """Makes rounds of calls of one model."""

    instruments: Instruments
    memory: MappedMemory
    model: Any
    guard: OperatorGuard
    """In force in every call."""
    backend: Backend
    module: Any = None
    """The candidate's; None for a placeholder."""
    _header: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    _calls: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]], init=False)

    def prepare(self, header: dict[str, Any]) -> None:
        """Prepare everything but the values of the inputs, which arrive before the worker sends `go`."""
        self._header = header
        self._calls = [self._call(call, header["poison"]) for call in header["calls"]]

    def run(self, done: Callable[[], None]) -> dict[str, Any]:
        """Make the round; call `done` once the outputs are in place. Raises CandidateError if a call fails."""
        header = self._header
        self.memory.pull(header["nbytes"])
        outcomes: list[dict[str, Any]] = []

        def after(index: int, result: Any) -> None:
            outcomes.append(self._take_outputs(index, result))

        answer: dict[str, Any] = {"kind": "round"}

        def work() -> None:
            timed = self.instruments.stopwatch.run(self._calls, after, header["pause_s"], header["synchronised"])
            answer["device_ms"] = timed.device_ms
            answer["enqueue_s"] = timed.enqueue_s
            answer["unjoined_s"] = timed.unjoined_s

        try:
            if header["suppressed"]:
                with self.backend.suppressed():
                    work()
            elif header["profiled"]:
                answer["kernels"] = self.instruments.profiler.records(work)
            else:
                work()
        except CudaError as error:
            raise _device_failure(str(error)) from error
        self.memory.push(header["nbytes"])
        done()
        if self.guard.violations:
            used = ", ".join(sorted(set(self.guard.violations))[:5])
            raise CandidateError("rejected", "library_compute", f"used {used}")
        answer["calls"] = outcomes
        if header["resources"]:
            answer["resources"] = self.backend.resources(self.module)
        return answer

    def _call(self, call: dict[str, Any], poison: bool) -> Callable[[], Any]:
        memory = self.memory.tensor
        inputs = [
            view(memory, TensorForm(**item["form"]), item["offset"]) if "form" in item else item["value"]
            for item in call["inputs"]
        ]
        model, guard = self.model, self.guard

        def forward() -> Any:
            guard.start(poison)
            try:
                with guard:
                    return model(*inputs)
            except BaseException as error:
                raise _failure(error, guard) from error

        return forward

    def _take_outputs(self, call: int, result: Any) -> dict[str, Any]:
        """Copy the outputs of a call to their slots, and describe them."""
        slots: list[dict[str, int]] = self._header["calls"][call]["outputs"]
        try:
            outputs, structure = flat(result)
        except Exception as error:
            raise CandidateError("runtime_error", "exception", describe(error)) from error
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
                copy_tensor(view(self.memory.tensor, form, slots[index]["offset"]), output)
        return {"structure": structure, "outputs": forms}


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


def _device_failure(text: str) -> CandidateError:
    """Return the failure for a kernel that the device stopped."""
    lower = text.lower()
    outside = any(word in lower for word in ("illegal memory", "illegal_address", "misaligned"))
    return CandidateError("runtime_error", "out_of_bounds" if outside else "device_fault", text)


def _failure(error: BaseException, guard: OperatorGuard) -> CandidateError:
    """Return the failure to report for an exception that a call raised."""
    if isinstance(error, ForbiddenOperatorError):
        return CandidateError("rejected", "library_compute", str(error))
    if guard.violations:
        return CandidateError("rejected", "library_compute", ", ".join(guard.violations[:5]))
    name = type(error).__name__
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return CandidateError("runtime_error", "out_of_memory", describe(error))
    if isinstance(error, CandidateError):
        return error
    if name in _COMPILER_ERRORS:
        return CandidateError("compile_error", "triton_compile", compiler_message(error))
    if "CUDA error" in str(error) or "Triton Error [CUDA]" in str(error):
        return _device_failure(describe(error))
    return CandidateError("runtime_error", "exception", describe(error))
