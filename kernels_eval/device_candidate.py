"""The candidate's process on a GPU: loads the candidate, makes the calls it is asked for, reports what was observed.

Warmed while it is still spare, before it is handed a job: a CUDA context, the events and the flush buffer of the stopwatch, the
profiler. Then one conversation (frames, see kernels_eval.wire). Judge: `load` (payload: pickled job, from the judge to us only).
Candidate: `awake`. Judge: any number of `round` with kernels of ours (`stand_ins`), by which it learns what a round takes beside
the calls; then `begin`, upon which the source is executed. Candidate: `ready` or `failed`. Judge: `weights`, then any number of `round` (calls: where the inputs lie in the shared device
memory and where the outputs go; whether to time, profile or suppress kernels). Candidate: `round` or `failed`. Nothing of the
reference, the input seeds or the verdict is ever in this process.
"""

import gc
import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernels_eval import cuda_driver
from kernels_eval.backends import Backend, backend_named
from kernels_eval.candidate import CandidateError, describe, load_source
from kernels_eval.compilation import _compiler_message as compiler_message  # pyright: ignore[reportPrivateUsage]
from kernels_eval.cuda_driver import CudaDriver, CudaError
from kernels_eval.device_memory import MappedMemory, view
from kernels_eval.device_policy import DevicePolicy
from kernels_eval.device_profile import Profiler
from kernels_eval.policy import PolicyViolationError, refuse_host_copies
from kernels_eval.stopwatch import Stopwatch
from kernels_eval.tensors import DTYPES, NAMES, TensorForm, form_of, tensor_from
from kernels_eval.wire import ChannelClosedError, receive_frame, send_frame

_MAX_THREADS = 100_000
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


class Warm:
    """What a spare process has ready."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.cuda.init()
        torch.zeros(1, device=cuda_driver.DEVICE)
        self.driver = CudaDriver()
        self.stopwatch = Stopwatch(self.driver)
        self.profiler = Profiler(self.stopwatch.flush)
        if os.environ.get("KERNELS_EVAL_WARM_PROFILER", "1") == "1":
            self.profiler.warm_up()
        self._load_launcher()

    def _load_launcher(self) -> None:
        """Load Triton's own library for the device, which it builds once and finds in the shared cache afterwards."""
        from triton.runtime import driver

        active: Any = driver.active
        active.get_current_device()
        active.get_current_target()
        _ = active.utils


_warm: list[Warm] = []


def warm_up() -> None:
    """Make this process ready for a job."""
    _warm.append(Warm())


def device_candidate_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Run one candidate; returns when the judge hangs up."""
    channel.settimeout(None)
    gc.set_threshold(50_000)
    try:
        _Conversation(channel, _warm[0] if _warm else Warm()).serve(memory_descriptor)
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return


class _Conversation:
    def __init__(self, channel: socket.socket, warm: Warm) -> None:
        self._channel = channel
        self._warm = warm
        self._frames: Callable[[], Any] = sys._current_frames  # pyright: ignore[reportPrivateUsage]
        self._threads = len(self._frames())

    def serve(self, memory_descriptor: int) -> None:
        _, payload = receive_frame(self._channel)
        try:
            job: dict[str, Any] = pickle.loads(payload)
            _use_cache_folder(job["scratch"])
            memory = MappedMemory(self._warm.driver, job["memory"], memory_descriptor)
            backend = backend_named(job["backend"])
            backend.install(job["build"])
        # Nothing of the candidate has run: the judge takes it for a fault of the machine.
        except (CudaError, RuntimeError, OSError, ImportError) as error:
            raise CandidateError("runtime_error", "judge_fault", describe(error)) from error
        policy = DevicePolicy(enforce=job["strict"])
        torch.set_grad_enabled(False)
        send_frame(self._channel, {"kind": "awake"})
        while (header := receive_frame(self._channel)[0])["kind"] == "round":
            stand_ins = _StandIns([TensorForm(**form) for form in header["stand_ins"]])
            policy_of_ours = DevicePolicy(enforce=False)
            self._answer(_Rounds(self._warm, memory, stand_ins, policy_of_ours, backend, None), header)
        module = load_source(job["source"])
        model = _build(module, job["arguments"], job["weight_seed"])
        if job["strict"]:
            refuse_host_copies(policy.violations.append)
        state = _state(model)
        named = {name: [NAMES.get(tensor.dtype, "?"), list(tensor.shape)] for name, tensor in state.items()}
        send_frame(self._channel, {"kind": "ready", "state": named})
        header, payload = receive_frame(self._channel)
        for item in header["weights"]:
            state[item["name"]].copy_(tensor_from(payload, TensorForm(**item["form"]), item["offset"]))
        rounds = _Rounds(self._warm, memory, model, policy, backend, module)
        while True:
            header, _ = receive_frame(self._channel)
            self._answer(rounds, header)

    def _answer(self, rounds: "_Rounds", header: dict[str, Any]) -> None:
        """Make one round, at the judge's word."""
        rounds.prepare(header)
        send_frame(self._channel, {"kind": "prepared"})
        receive_frame(self._channel)
        answer = rounds.run(lambda: send_frame(self._channel, {"kind": "done"}))
        answer["threads"] = min(_MAX_THREADS, 1 + len(self._frames()) - self._threads)
        send_frame(self._channel, answer)


class _StandIns:
    """A model of ours: fills outputs of the forms that the candidate's will have."""

    def __init__(self, forms: list[TensorForm]) -> None:
        self._forms = forms

    def __call__(self, *_: Any) -> tuple[torch.Tensor, ...]:
        """Return fresh outputs."""
        return tuple(
            torch.ones(form.shape, dtype=DTYPES[form.dtype], device=cuda_driver.DEVICE) for form in self._forms
        )


class _Rounds:
    """Makes rounds of calls on one model."""

    def __init__(
        self, warm: Warm, memory: MappedMemory, model: Any, policy: DevicePolicy, backend: Backend, module: Any
    ) -> None:
        self._warm = warm
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
            timed = self._warm.stopwatch.run(self._calls, after, header["pause_s"], header["synchronised"])
            answer["device_ms"] = timed.device_ms
            answer["enqueue_s"] = timed.enqueue_s

        try:
            if header["suppressed"]:
                with self._backend.suppressed():
                    work()
            elif header["profiled"]:
                answer["kernels"] = self._warm.profiler.records(work)
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
        outputs: list[Any] = list(result) if isinstance(result, tuple | list) else [result]
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
        return {"sequence": isinstance(result, tuple | list), "outputs": forms}


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
    if isinstance(error, PolicyViolationError):
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


def _use_cache_folder(scratch: str) -> None:
    """Compile into a folder of this candidate's own: what it puts there is never loaded for another."""
    folder = Path(scratch) / "triton"
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(folder)
    os.environ["TMPDIR"] = scratch
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(scratch) / "extensions")


def _build(module: Any, arguments: list[Any], weight_seed: int) -> Any:
    model_class = getattr(module, "ModelNew", None)
    if not isinstance(model_class, type):
        raise CandidateError("compile_error", "missing_model", "the source defines no class ModelNew")
    torch.manual_seed(weight_seed)
    try:
        model: Any = model_class(*arguments)
        return model.to(cuda_driver.DEVICE) if isinstance(model, torch.nn.Module) else model
    except CandidateError:
        raise
    except BaseException as error:
        raise CandidateError("runtime_error", "constructor_error", describe(error)) from error


def _state(model: Any) -> dict[str, torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
