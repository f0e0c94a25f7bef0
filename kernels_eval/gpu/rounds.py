"""Rounds of calls in the candidate's process on a GPU: made, timed or profiled; outputs are copied to the shared memory."""

from collections.abc import Callable
from typing import Any

import torch

from kernels_eval.backends import Backend
from kernels_eval.compile.triton import compiler_message
from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.correctness.output_structure import flat
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaError
from kernels_eval.gpu.operator_guard import OperatorGuard
from kernels_eval.gpu.profiling import Profiler
from kernels_eval.gpu.shared_memory import MappedMemory, view
from kernels_eval.gpu.stopwatch import Stopwatch
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


class Rounds:
    """Makes rounds of calls of one model."""

    def __init__(
        self,
        stopwatch: Stopwatch,
        profiler: Profiler,
        memory: MappedMemory,
        model: Any,
        guard: OperatorGuard,
        backend: Backend,
        module: Any,
    ) -> None:
        """`guard` is in force in every call; `module`: the candidate's, or None for a placeholder."""
        self._stopwatch = stopwatch
        self._profiler = profiler
        self._memory = memory
        self._model = model
        self._guard = guard
        self._backend = backend
        self._module = module
        self._copy: Any = torch.Tensor.copy_
        self._header: dict[str, Any] = {}
        self._calls: list[Callable[[], Any]] = []

    def prepare(self, header: dict[str, Any]) -> None:
        """Prepare everything but the values of the inputs, which arrive before the worker sends `go`."""
        self._header = header
        self._calls = [self._call(call, header["poison"]) for call in header["calls"]]

    def run(self, done: Callable[[], None]) -> dict[str, Any]:
        """Make the round; call `done` once the device is idle and the outputs are in place. CandidateError if a call fails."""
        header = self._header
        self._memory.pull(header["nbytes"])
        outcomes: list[dict[str, Any]] = []

        def after(index: int, result: Any) -> None:
            outcomes.append(self._take_outputs(index, result))

        answer: dict[str, Any] = {"kind": "round"}

        def work() -> None:
            timed = self._stopwatch.run(self._calls, after, header["pause_s"], header["synchronised"])
            answer["device_ms"] = timed.device_ms
            answer["enqueue_s"] = timed.enqueue_s
            answer["unjoined_s"] = timed.unjoined_s

        try:
            if header["suppressed"]:
                with self._backend.suppressed():
                    work()
            elif header["profiled"]:
                answer["kernels"] = self._profiler.records(work)
            else:
                work()
        except CudaError as error:
            raise _device_failure(str(error)) from error
        self._memory.push(header["nbytes"])
        done()
        if self._guard.violations:
            used = ", ".join(sorted(set(self._guard.violations))[:5])
            raise CandidateError("rejected", "library_compute", f"used {used}")
        answer["calls"] = outcomes
        if header["resources"]:
            answer["resources"] = self._backend.resources(self._module)
        return answer

    def _call(self, call: dict[str, Any], poison: bool) -> Callable[[], Any]:
        memory = self._memory.tensor
        inputs = [
            view(memory, TensorForm(**item["form"]), item["offset"]) if "form" in item else item["value"]
            for item in call["inputs"]
        ]
        model, guard = self._model, self._guard

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
                self._copy(view(self._memory.tensor, form, slots[index]["offset"]), output)
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
