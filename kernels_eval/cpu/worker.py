"""CPU worker: grades one candidate after another for the judge's process, over a socket.

Forked from the warm zygote. Before it reads the first problem it forks two fork servers, one for tracing processes
and one for interpreter processes. It ends if it loses one of them, since it can no longer fork a clean one. The judge
then starts another worker.

Request: `evaluate` (problem, kernel, config; on a GPU also build). Reply: `graded` (verdict, launches; here also
kernels, alternatives and work; on a GPU seconds), `reference_failed` (message) or `fault` (message). `loading` and
`loaded` come before it, around the loading of a problem that is new to the worker.
"""

import os
import socket
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernels_eval.config import JudgeConfig
from kernels_eval.correctness.outputs import ONE, ReferenceFailedError
from kernels_eval.cpu.full_size import constexpr_names, describe, operator_launches
from kernels_eval.cpu.grader import Grader
from kernels_eval.cpu.public_messages import PublicMessages
from kernels_eval.errors import InfrastructureError, first_line
from kernels_eval.interpreter import process as interpreter
from kernels_eval.interpreter.kernel_runs import KernelRuns
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.problem import EXAMPLE_KERNEL
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.reference.settings import unchanged_settings
from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.sandbox.fork_server import ChildMain, ChildSetup, ForkServer, serve_fork_server
from kernels_eval.sandbox.limits import die_with_parent
from kernels_eval.sandbox.messages import ChannelClosedError, note_pair, receive_frame, send_frame
from kernels_eval.trace.schema import TRACING_ANSWER, LaunchKernel, Operate, TraceAnswer
from kernels_eval.tracing import process as tracing
from kernels_eval.tracing.fake_cuda import OnCpu
from kernels_eval.tracing.kernel_sources import KernelSources
from kernels_eval.tracing.launch_recorder import LaunchRecorder
from kernels_eval.tracing.tracer import Tracer


def serve_worker(judge: socket.socket) -> None:
    """Serve until the judge's process closes the socket."""
    tracing_server = start_fork_server(tracing.tracing_main, [judge], setup=ChildSetup(prepare=tracing.prepare))
    setup = ChildSetup(prepare=interpreter.prepare)
    interpreter_server = start_fork_server(interpreter.interpreter_main, [judge, tracing_server], setup=setup)
    die_with_parent()
    servers = ForkServer(tracing_server), ForkServer(interpreter_server)
    grader = Grader(*servers)
    messages = PublicMessages(*servers, grader)

    def grade(request: dict[str, Any]) -> dict[str, Any]:
        problem, kernel, config = request["problem"], request["kernel"], JudgeConfig(**request["config"])
        load_if_new(judge, grader, problem, config)
        graded = grader.grade(problem, kernel, config)
        verdict = messages.without_draws(graded, problem, kernel, config)
        return {
            "verdict": verdict.model_dump(mode="json"),
            "launches": [launch.model_dump(mode="json") for launch in graded.launches],
            "kernels": [kernel.model_dump(mode="json") for kernel in graded.kernels],
            "alternatives": [[launch.model_dump(mode="json") for launch in each] for each in graded.alternatives],
            "alternative_kernels": [kernel.model_dump(mode="json") for kernel in graded.alternative_kernels],
            "work": graded.work.model_dump(mode="json"),
        }

    serve_requests(judge, {"sandbox": grader.sandbox}, grade)


class Loader(Protocol):
    """A grader, as far as it loads problems."""

    def has_loaded(self, problem_source: str) -> bool:
        """Return True if a problem is held."""
        ...

    def load(self, problem_source: str, config: JudgeConfig) -> None:
        """Load a problem within limits. Raises ReferenceFailedError if it fails."""
        ...


def load_if_new(judge: socket.socket, grader: Loader, problem: str, config: JudgeConfig) -> None:
    """Load a problem that is new to the worker; the judge's process is told before and after it."""
    if not grader.has_loaded(problem):
        send_frame(judge, {"kind": "loading"})
        grader.load(problem, config)
        send_frame(judge, {"kind": "loaded"})


def serve_requests(
    judge: socket.socket,
    facts: dict[str, Any],
    grade: Callable[[dict[str, Any]], dict[str, Any]],
    of_the_machine: tuple[type[Exception], ...] = (),
) -> None:
    """Send `hello` with this worker's facts, then answer each request with the fields that `grade` returns.

    Returns when the judge closes the socket, or after a fault of the machine or a bug of the judge. `of_the_machine`:
    exceptions that are none; they are raised, as others that say that memory or files are lacking.
    """
    send_frame(judge, {"kind": "hello", "process": os.getpid(), **facts})
    while True:
        try:
            request, _ = receive_frame(judge)
        except ChannelClosedError:
            return
        try:
            with unchanged_settings():
                reply = {"kind": "graded", **grade(request)}
        except ReferenceFailedError as failed:
            reply = {"kind": "reference_failed", "message": str(failed)}
        except InfrastructureError as fault:
            send_frame(judge, {"kind": "fault", "message": str(fault)})
            return
        except Exception as error:
            if isinstance(error, of_the_machine) or _lacks_memory_or_files(error):
                raise
            traceback.print_exc()
            send_frame(judge, {"kind": "bug", "message": f"{type(error).__name__}: {first_line(error)}"[:1000]})
            return
        send_frame(judge, reply)


def _lacks_memory_or_files(error: Exception) -> bool:
    """Return whether the machine lacks them. Words of other exceptions may be the candidate's."""
    is_of_torch = type(error) is RuntimeError and "DefaultCPUAllocator" in str(error)
    return is_of_torch or isinstance(error, MemoryError | OSError)


def start_fork_server(
    child_main: ChildMain, not_inherited: list[socket.socket], may_fork: bool = False, setup: ChildSetup | None = None
) -> socket.socket:
    """Fork a fork server; returns the socket to it. `not_inherited`: sockets that it must close."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            for other in (ours, *not_inherited):
                other.close()
            serve_fork_server(theirs, child_main, may_fork, setup)
        finally:
            os._exit(0)
    theirs.close()
    return ours


WARM_UP_PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return F.softmax(F.gelu(self.norm(self.linear(x))) + x.mean(dim=1, keepdim=True), dim=1)

def get_inputs():
    return [torch.randn(128, 16)]

def get_init_inputs():
    return []
"""


def warm_up() -> None:
    """Judge one small problem to warm imports and caches before any fork.

    Without it each candidate's process would import torch._dynamo (1.4 s) at its first operator under a dispatch mode.
    """
    reference = Reference(WARM_UP_PROBLEM, weight_seed=1)
    inputs = reference.draw(32, 1, SecretSeed(b"warm-up"), own=False)
    reference.expected(inputs, perturbed=True)
    tracing.global_state()
    trace = _trace(inputs[0])
    store = TensorStore(strict=True)
    store.give(0, inputs[0], inputs[0].numel() * inputs[0].element_size())
    runs = KernelRuns(store)
    runs.load(trace.kernels)
    for command in trace.commands:
        if isinstance(command, Operate):
            store.operate(command)
            operator_launches(command)
        elif isinstance(command, LaunchKernel):
            runs.run(command)
            describe(command, {kernel.number: kernel for kernel in trace.kernels}, constexpr_names(trace.kernels))
    view = trace.outputs[0].view
    assert view is not None
    store.origin_counts(view)


def _trace(given: torch.Tensor) -> TraceAnswer:
    sources = KernelSources()
    tracer = Tracer(strict=True, read=_no_value)
    recorder = LaunchRecorder(tracer, sources)
    recorder.install()
    with OnCpu():
        model: Any = load_source(EXAMPLE_KERNEL).ModelNew()
    with torch.no_grad(), tracer:
        result = model(tracer.input(0, tuple(given.shape), given.dtype))
        result.t().contiguous()
    outputs = [{"view": tracer.view_of(result)}]
    commands, _ = tracer.take()
    answer = TRACING_ANSWER.validate_python(
        {"kind": "trace", "structure": ONE, "outputs": outputs, "commands": commands, "kernels": sources.take_fresh()}
    )
    assert isinstance(answer, TraceAnswer)
    return answer


def _no_value(_: dict[str, Any]) -> Any:
    raise AssertionError("the warm-up reads no value")
