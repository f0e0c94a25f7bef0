"""A pretended GPU: the judge's whole path for GPUs runs on the CPU, with Triton's interpreter in the place of the device.

What is real: processes, the session, shared memory through host copies, trials, hidden sizes, guards, checks, rounds, the
clocks' arithmetic. What is pretended: the driver (events are the host's clock), the profiler (the interpreter's launches), the
device's properties. Run as a program (`python simulated_device.py`): one JSON request a line on standard input (`problem`,
`kernel`, `config`, and `beside_s` where a rehearsal is to have gone wrong), one JSON verdict a line on standard output.
"""

import hashlib
import inspect
import itertools
import json
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch._dynamo  # as the real zygote has by its rehearsal; else each candidate would import it, which takes a second

from kernels_eval.gpu import call_sets as device_call_sets
from kernels_eval.gpu import candidate as device_candidate
from kernels_eval.gpu import candidate_run as device_run
from kernels_eval.gpu import cuda_driver, stopwatch
from kernels_eval.gpu import grader as device_grading
from kernels_eval.gpu import hardware as device_facts
from kernels_eval.gpu.candidate import device_candidate_main, warm_up
from kernels_eval.gpu.confinement import confine_device_child, confine_device_fork_server
from kernels_eval.gpu.timing import Rehearsed
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Origin, Region, Storage
from kernels_eval.interpreter.triton_patches import interpreter
from kernels_eval.sandbox.fork_server import ChildSetup, ForkServer, serve_fork_server
from kernels_eval.sandbox.ipc import note_pair
from kernels_eval.sandbox.limits import die_with_parent


class SimulatedDriver:
    """Events that take the host's time; a device that is always idle."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._failures: list[str] = []

    def synchronize(self) -> None: ...

    def new_event(self) -> int:
        self._times.append(0.0)
        return len(self._times) - 1

    def record(self, event: int, stream: int) -> None:
        self._times[event] = time.perf_counter()

    def wait_for(self, event: int) -> None: ...

    def load(self, program: str, name: str) -> int:
        return 0

    def launch(self, function: int, number: int, stream: int) -> None: ...

    def elapsed_ms(self, start: int, end: int) -> float:
        return 1e3 * (self._times[end] - self._times[start])


_LAUNCHED: list[str] = []


def launch_at_once(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
    """Run a kernel on the caller's own tensors, bounds checked."""
    if warmup:
        return
    parameters = inspect.signature(kernel.fn).parameters
    bound = inspect.signature(kernel.fn).bind(*args, **{name: kwargs[name] for name in kwargs if name in parameters})
    bound.apply_defaults()
    constexprs = [name for name, parameter in parameters.items() if "constexpr" in str(parameter.annotation)]
    grid = grid(dict(bound.arguments)) if callable(grid) else grid
    grid = tuple(grid) + (1,) * (3 - len(grid))
    regions: list[Region] = []
    for name, value in bound.arguments.items():
        if isinstance(value, torch.Tensor):
            memory = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
            regions.append(Region(name, Storage(0, memory, Origin.GIVEN), memory.data_ptr(), memory.numel()))
    ACCESS_LOG.start(regions)
    converted = {
        name: value if name in constexprs else interpreter.upstream._implicit_cvt(value)
        for name, value in bound.arguments.items()
    }
    programs = itertools.product(*(range(size) for size in grid))
    interpreter.interpret(SimpleNamespace(fn=kernel.rewrite()), converted, grid, programs)
    _LAUNCHED.append(kernel.fn.__name__)


class SimulatedProfiler:
    def __init__(self, flush: Any) -> None: ...

    def warm_up(self) -> None: ...

    def records(self, work: Any) -> list[dict[str, Any]]:
        _LAUNCHED.clear()
        work()
        return [{"name": name, "duration_ns": 1000, "stream": 0} for name in _LAUNCHED]


class HostOnly(device_grading.DeviceGrader):
    def probe(self) -> None:
        self.use_host_copies()

    def misremember(self, problem: str, beside_s: float) -> None:
        """Hold what a round of a problem takes beside its calls for other than it is, as after a rehearsal on a busy machine."""
        digest = hashlib.sha256(problem.encode()).hexdigest()
        self._device.rehearsed[digest] = Rehearsed(device_run._REHEARSED_PAUSE_S, beside_s)


def pretend() -> None:
    """Replace what needs a GPU, in this process and all that it forks."""
    interpreter.install()
    interpreter.upstream.InterpretedFunction.run = launch_at_once
    cuda_driver.DEVICE = "cpu"
    cuda: Any = torch.cuda
    cuda.init = lambda: None
    cuda.set_stream = lambda stream: None
    cuda.default_stream = lambda: SimpleNamespace(cuda_stream=0)
    cuda.get_device_properties = lambda index: SimpleNamespace(
        name="Simulated H100", major=9, minor=0, L2_cache_size=1 << 20
    )
    stopwatch._MIN_FLUSH_BYTES = 1 << 20
    for module in (device_candidate, device_grading):
        module.CudaDriver = SimulatedDriver
    device_candidate.Profiler = SimulatedProfiler
    device_candidate.Warm._load_launcher = lambda self: None
    device_call_sets.MOST_CALLS = 4
    _ = device_facts


def new_grader() -> HostOnly:
    """Fork a fork server and return a grader on it, as a worker on a GPU does."""
    ours, theirs = note_pair()
    if os.fork() == 0:
        try:
            ours.close()
            setup = ChildSetup(warm_up, confine_device_fork_server, confine_device_child)
            serve_fork_server(theirs, device_candidate_main, may_fork=True, setup=setup)
        finally:
            os._exit(0)
    theirs.close()
    grader = HostOnly(ForkServer(ours))
    grader.probe()
    return grader


def main() -> None:
    die_with_parent()
    torch.set_num_threads(1)
    pretend()
    grader = new_grader()
    for line in sys.stdin:
        request = json.loads(line)
        config = device_grading.JudgeConfig(**request.get("config", {}))
        if "beside_s" in request:
            grader.misremember(request["problem"], request["beside_s"])
        verdict = grader.grade(request["problem"], request["kernel"], config, {})
        print(verdict.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
