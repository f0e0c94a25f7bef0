"""Rounds of calls in the candidate's process on a GPU: made, timed or profiled, and their outputs put where the judge reads them."""

from collections.abc import Callable
from typing import Any

import torch

from kernels_eval.backends import Backend
from kernels_eval.compile.triton import compiler_message
from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.correctness.output_structure import flat
from kernels_eval.gpu import cuda_driver
from kernels_eval.gpu.cuda_driver import CudaError
from kernels_eval.gpu.operator_guard import DevicePolicy
from kernels_eval.gpu.profiler import Profiler
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
"""Classes of Triton; by name, since importing the compiler's modules is Triton's business."""


class StandIns:
    """A model of ours: fills outputs of the forms that the candidate's will have."""

    def __init__(self, forms: list[TensorForm]) -> None:
        """`forms`: of the outputs."""
        self._forms = forms

    def __call__(self, *_: Any) -> tuple[torch.Tensor, ...]:
        """Return fresh outputs."""
        return tuple(
            torch.ones(form.shape, dtype=DTYPES[form.dtype], device=cuda_driver.DEVICE) for form in self._forms
        )


class Rounds:
    """Makes rounds of calls on one model."""

    def __init__(
        self,
        stopwatch: Stopwatch,
        profiler: Profiler,
        memory: MappedMemory,
        model: Any,
        policy: DevicePolicy,
        backend: Backend,
        module: Any,
    ) -> None:
        """`module`: the candidate's, if it is one; `policy` is in force in every call."""
        self._stopwatch = stopwatch
        self._profiler = profiler
        self._memory = memory
        self._model = model
        self._policy = policy
        self._backend = backend
        self._module = module
        self._copy: Any = torch.Tensor.copy_
        self._header: dict[str, Any] = {}
        self._calls: list[Callable[[], Any]] = []
        self._spans: list[list[tuple[int, int, int]]] = []

    def prepare(self, header: dict[str, Any]) -> None:
        """Get everything ready but the values of the inputs, which arrive before the judge says go."""
        self._header = header
        self._calls = [self._call(call, header["poison"]) for call in header["calls"]]
        self._spans = [_spans(call, self._memory.tensor) for call in header["calls"]]

    def run(self, done: Callable[[], None]) -> dict[str, Any]:
        """Do the round, and say so when the device is idle and the outputs are in place. CandidateError where a call fails."""
        header = self._header
        self._memory.fetch(header["nbytes"])
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
        self._memory.deliver(header["nbytes"])
        done()
        if self._policy.violations:
            used = ", ".join(sorted(set(self._policy.violations))[:5])
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
        model, policy = self._model, self._policy

        def forward() -> Any:
            policy.start(poison)
            try:
                with policy:
                    return model(*inputs)
            except BaseException as error:
                raise _failure(error, policy) from error

        return forward

    def _take_outputs(self, call: int, result: Any) -> dict[str, Any]:
        """Copy the outputs of a call to where the judge reads them, and describe them."""
        rooms: list[dict[str, int]] = self._header["calls"][call]["outputs"]
        try:
            outputs, structure = flat(result)
        except Exception as error:
            raise CandidateError("runtime_error", "exception", describe(error)) from error
        forms: list[dict[str, Any]] = []
        for index, output in enumerate(outputs):
            odd = _odd(output)
            if odd is not None:
                forms.append({"kind": "other", "type": odd[:100]})
                continue
            expanded = any(stride == 0 and size > 1 for stride, size in zip(output.stride(), output.shape, strict=True))
            start = output.data_ptr()
            aliased = [number for number, first, end in self._spans[call] if first <= start < end]
            form = form_of(output)
            forms.append({**form.model_dump(), "share": 1.0, "expanded": expanded, "aliased_inputs": aliased})
            if index < len(rooms) and 0 < form.nbytes == rooms[index]["nbytes"]:
                self._copy(view(self._memory.tensor, form, rooms[index]["offset"]), output)
        return {"structure": structure, "outputs": forms}


def _spans(call: dict[str, Any], memory: torch.Tensor) -> list[tuple[int, int, int]]:
    """Index, first address and end of each tensor input."""
    spans: list[tuple[int, int, int]] = []
    for index, item in enumerate(call["inputs"]):
        if "form" in item:
            start = memory.data_ptr() + item["offset"]
            spans.append((index, start, start + TensorForm(**item["form"]).nbytes))
    return spans


def _odd(output: Any) -> str | None:
    """Say what is wrong with an output that is no plain tensor on the device; None where it is one."""
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
    """What the device said of a kernel that it stopped."""
    lower = text.lower()
    outside = any(word in lower for word in ("illegal memory", "illegal_address", "misaligned"))
    return CandidateError("runtime_error", "out_of_bounds" if outside else "device_fault", text)


def _failure(error: BaseException, policy: DevicePolicy) -> CandidateError:
    """Turn what a call raised into what the judge is told."""
    if isinstance(error, ForbiddenOperatorError):
        return CandidateError("rejected", "library_compute", str(error))
    if policy.violations:
        return CandidateError("rejected", "library_compute", ", ".join(policy.violations[:5]))
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
