"""Runs one small problem and kernel in the warm zygote, so that what torch and triton import lazily is there before any fork.

Without it each candidate's process would import torch._dynamo (1.4 s) at its first operator under a dispatch mode.
"""

from typing import Any

import torch

from kernels_eval.correctness.output_structure import ONE
from kernels_eval.cpu.full_size import constexpr_names, describe, operator_launch
from kernels_eval.example import KERNEL
from kernels_eval.interpreter.kernel_runs import KernelRuns
from kernels_eval.interpreter.tensor_store import ExecutorMemory
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.trace.schema import HOST_ANSWER, LaunchKernel, Operate, TraceAnswer
from kernels_eval.tracing.fake_cuda import HostDevice
from kernels_eval.tracing.global_state import global_state
from kernels_eval.tracing.kernel_sources import KernelSources
from kernels_eval.tracing.launch_recorder import LaunchRecorder
from kernels_eval.tracing.tracer import Tracer

PROBLEM = """
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


def rehearse() -> None:
    """Do once what workers and candidates will do, and leave nothing behind but warm imports and caches."""
    reference = Reference(PROBLEM, weight_seed=1)
    inputs = reference.draw(32, 1, SecretSeed(b"rehearsal"), own=False)
    reference.expected(inputs, perturbed=True)
    global_state()
    trace = _trace(inputs[0])
    memory = ExecutorMemory(strict=True)
    memory.give(0, inputs[0], inputs[0].numel() * inputs[0].element_size())
    kernels = KernelRuns(memory)
    kernels.load(trace.units)
    for command in trace.commands:
        if isinstance(command, Operate):
            memory.operate(command)
            operator_launch(command)
        elif isinstance(command, LaunchKernel):
            kernels.run(command)
            describe(command, {unit.unit: unit for unit in trace.units}, constexpr_names(trace.units))
    view = trace.outputs[0].view
    assert view is not None
    memory.origins(view)


def _trace(given: torch.Tensor) -> TraceAnswer:
    units = KernelSources()
    tracer = Tracer(strict=True, read=_no_value)
    recorder = LaunchRecorder(tracer, units)
    recorder.install()
    with HostDevice():
        model: Any = load_source(KERNEL).ModelNew()
    with torch.no_grad(), tracer:
        result = model(tracer.input(0, tuple(given.shape), given.dtype))
        result.t().contiguous()
    outputs = [{"view": tracer.view_of(result)}]
    commands, _ = tracer.take()
    answer = HOST_ANSWER.validate_python(
        {"kind": "trace", "structure": ONE, "outputs": outputs, "commands": commands, "units": units.take_fresh()}
    )
    assert isinstance(answer, TraceAnswer)
    return answer


def _no_value(_: dict[str, Any]) -> Any:
    raise AssertionError("the rehearsal reads no value")
