"""The candidate's process: loads the candidate, runs it on the inputs it is given, sends back raw tensors and counts.

Conversation (frames, see kernels_eval.wire). Judge: `load` (payload: pickled source, constructor arguments, weight seed; from the
judge to us only). Candidate: `ready` (names and shapes of parameters and buffers) or `failed`. Judge: `weights` (tensors to
copy by name), then any number of `run` (inputs lie in shared memory), and `measure` (say the grids, launch nothing). Candidate: `answer` (forms of the outputs, launches,
shares; payload: the outputs) or `failed`. Nothing of the reference, the input seeds or the verdict is ever in this process.
"""

import gc
import linecache
import mmap
import os
import pickle
import socket
import sys
import traceback
import types
from typing import Any

import torch

from kernels_eval.accounting import LEDGER, OutOfBoundsError
from kernels_eval.interpreter import KernelError
from kernels_eval.policy import PolicyViolationError, StrictPolicy, refuse_host_copies
from kernels_eval.tensors import NAMES, TensorForm, bytes_of, form_of, tensor_from
from kernels_eval.wire import ChannelClosedError, receive_frame, send_frame

FILE_NAME = "kernel.py"
"""What the candidate's source is called in tracebacks."""
_MAX_MESSAGE = 600


class CandidateError(Exception):
    """The candidate failed; `header` is what the judge is told."""

    def __init__(self, status: str, category: str, message: str) -> None:
        super().__init__(message)
        self.header = {"kind": "failed", "status": status, "category": category, "message": message[:_MAX_MESSAGE]}


def candidate_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Run one candidate; returns when the judge hangs up."""
    channel.settimeout(None)
    gc.set_threshold(50_000)  # a short life: collecting early would touch, and so copy, the template's pages
    try:
        _converse(channel, memory_descriptor)
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return


def _converse(channel: socket.socket, memory_descriptor: int) -> None:
    _, payload = receive_frame(channel)
    job: dict[str, Any] = pickle.loads(payload)
    torch.set_num_threads(1)
    module = load_source(job["source"])
    model = _build(module, job["arguments"], job["weight_seed"])
    policy = StrictPolicy(enforce=job["strict"])
    if job["strict"]:
        refuse_host_copies(policy.violations.append)
    state = _state(model)
    named = {name: [NAMES.get(tensor.dtype, "?"), list(tensor.shape)] for name, tensor in state.items()}
    send_frame(channel, {"kind": "ready", "state": named})
    header, payload = receive_frame(channel)
    with torch.no_grad():
        for item in header["weights"]:
            state[item["name"]].copy_(tensor_from(payload, TensorForm(**item["form"]), item["offset"]))
    while True:
        header, _ = receive_frame(channel)
        inputs = _inputs(header["inputs"], memory_descriptor)
        if header["kind"] == "measure":
            _answer_grids(channel, model, policy, inputs)
        else:
            _answer(channel, model, policy, inputs)


def _inputs(items: list[dict[str, Any]], memory_descriptor: int) -> list[Any]:
    size = os.fstat(memory_descriptor).st_size
    memory = memoryview(mmap.mmap(memory_descriptor, size) if size else bytearray())
    return [
        tensor_from(memory, TensorForm(**item["form"]), item["offset"]) if "form" in item else item["value"]
        for item in items
    ]


def load_source(source: str) -> types.ModuleType:
    """Execute a candidate's source as a module whose source lines can be found (Triton reads them)."""
    module = types.ModuleType("candidate")
    module.__file__ = FILE_NAME
    sys.modules["candidate"] = module
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(keepends=True), FILE_NAME)
    try:
        code = compile(source, FILE_NAME, "exec")
    except SyntaxError as error:
        text = (error.text or "").strip()
        raise CandidateError(
            "compile_error", "syntax_error", f"SyntaxError: {error.msg} (line {error.lineno}: {text})"
        ) from error
    except ValueError as error:
        raise CandidateError("compile_error", "syntax_error", f"ValueError: {error}") from error
    try:
        exec(code, module.__dict__)
    except ImportError as error:
        raise CandidateError("compile_error", "import_error", describe(error)) from error
    except BaseException as error:
        raise CandidateError("compile_error", "load_error", describe(error)) from error
    return module


def _build(module: types.ModuleType, arguments: list[Any], weight_seed: int) -> Any:
    model_class = getattr(module, "ModelNew", None)
    if not isinstance(model_class, type):
        raise CandidateError("compile_error", "missing_model", "the source defines no class ModelNew")
    torch.manual_seed(weight_seed)
    try:
        return model_class(*arguments)
    except BaseException as error:
        raise CandidateError("runtime_error", "constructor_error", describe(error)) from error


def _state(model: Any) -> dict[str, torch.Tensor]:
    if not isinstance(model, torch.nn.Module):
        return {}
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _answer_grids(channel: socket.socket, model: Any, policy: StrictPolicy, inputs: list[Any]) -> None:
    """Say what would be launched on inputs of the true shape, without running it. An empty answer where that cannot be said."""
    LEDGER.reset()
    LEDGER.only_grids = True
    try:
        with torch.no_grad(), policy:
            model(*inputs)
        launches = [launch.model_dump() for launch in LEDGER.launches]
    except BaseException:  # noqa: BLE001 (a candidate may raise anything; the judge then estimates)
        launches = []
    send_frame(channel, {"kind": "answer", "sequence": False, "outputs": [], "launches": launches})


def _answer(channel: socket.socket, model: Any, policy: StrictPolicy, inputs: list[Any]) -> None:
    LEDGER.reset()
    policy.copied.clear()
    try:
        with torch.no_grad(), policy:
            result = model(*inputs)
    except KernelError as error:
        raise _kernel_failure(error) from error
    except PolicyViolationError as error:
        raise CandidateError("rejected", "library_compute", str(error)) from error
    except MemoryError as error:
        raise CandidateError("runtime_error", "out_of_memory", describe(error)) from error
    except BaseException as error:
        if policy.violations:
            raise CandidateError("rejected", "library_compute", ", ".join(policy.violations[:5])) from error
        category = "out_of_memory" if "can't allocate memory" in str(error) else "exception"
        raise CandidateError("runtime_error", category, describe(error)) from error
    if policy.violations:
        raise CandidateError("rejected", "library_compute", f"used {', '.join(sorted(set(policy.violations))[:5])}")
    if not any(launch.signature or launch.uncompilable for launch in LEDGER.launches):
        raise CandidateError("rejected", "no_kernel_launched", "forward launched no kernel")
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    forms: list[dict[str, Any]] = []
    payload: list[memoryview] = []
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            forms.append({"kind": "other", "type": type(output).__name__[:100]})
            continue
        expanded = any(stride == 0 and size > 1 for stride, size in zip(output.stride(), output.shape, strict=True))
        aliased = [
            index
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor)
            and value.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
        ]
        facts = {"share": policy.kernel_share(output), "expanded": expanded, "aliased_inputs": aliased}
        forms.append({**form_of(output).model_dump(), **facts})
        payload.append(bytes_of(output))
    launches = [launch.model_dump() for launch in LEDGER.launches]
    send_frame(
        channel,
        {"kind": "answer", "sequence": isinstance(result, tuple | list), "outputs": forms, "launches": launches},
        payload,
    )


def _kernel_failure(error: KernelError) -> CandidateError:
    cause = error.__cause__ or error
    if isinstance(cause, OutOfBoundsError):
        return CandidateError("runtime_error", "out_of_bounds", f"{error.kernel}: {describe(cause)}")
    if isinstance(cause, MemoryError):
        return CandidateError("runtime_error", "out_of_memory", f"{error.kernel}: {describe(cause)}")
    if isinstance(cause, AssertionError):
        return CandidateError("runtime_error", "kernel_assertion", f"{error.kernel}: {describe(cause)}")
    # The interpreter runs the kernel's Python: what it cannot run, the compiler cannot compile either.
    return CandidateError("compile_error", "triton_compile", f"{error.kernel}: {describe(cause)}")


def describe(error: BaseException) -> str:
    """Return type, message and the candidate's own innermost line of an exception."""
    line = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == FILE_NAME:
            line = f" (line {frame.lineno}: {(frame.line or '').strip()})"
            break
    message = str(error).strip().split("\n")[0][: _MAX_MESSAGE - 100]
    return f"{type(error).__name__}: {message}{line}"
