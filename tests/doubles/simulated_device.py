"""Simulated GPU: the judge's whole path for GPUs on the CPU, with Triton's interpreter in the place of the device.

Real are the processes, the session, shared memory through host copies, trials, hidden sizes, guards, checks, rounds and
the clock. Simulated are the driver, the profiler (the interpreter's launches) and the device's properties; there is no
gate, which needs a queue. Run as a program (`python simulated_device.py`): one JSON request a line on standard input
(`problem`, `kernel`, `config`, `overhead_s` to replace the time of a round without calls, and `has_seconds`), one JSON
verdict a line on standard output, and another line with its seconds if they are asked for. With the number of a socket
as an argument: a judge's worker on it. Its folder, with the device's lock, is TMPDIR, if set, or one of its own.
"""

import hashlib
import inspect
import itertools
import json
import os
import socket
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch._dynamo  # as in the warm zygote; else each candidate would import it, which takes a second

from kernels_eval.config import JudgeConfig
from kernels_eval.cpu.worker import start_fork_server
from kernels_eval.gpu import candidate_start, grader, worker
from kernels_eval.gpu.candidate import warm_up
from kernels_eval.gpu.candidate.process import SETUP, candidate_main
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.timing import timer
from kernels_eval.gpu.timing.timer import Overhead, Overheads
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Origin, Region, Storage
from kernels_eval.interpreter.triton_patches import interpreter, names, programs
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import die_with_parent


class SimulatedDriver:
    """A device that is always idle."""

    def synchronize(self) -> None: ...

    def new_event(self) -> int:
        return 0

    def record(self, event: int, stream: int) -> None: ...

    def wait_for(self, event: int) -> None: ...

    def is_idle(self) -> bool:
        return True

    def free_bytes(self) -> int:
        return 1 << 34


_LAUNCHED: list[str] = []
_to_numpy = torch.Tensor.numpy


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
        name: value if name in constexprs else names.runtime_value(value) for name, value in bound.arguments.items()
    }
    numbers = itertools.product(*(range(size) for size in grid))
    refusing, torch.Tensor.numpy = torch.Tensor.numpy, _to_numpy  # the interpreter itself needs it
    try:
        programs.interpret(SimpleNamespace(fn=kernel.rewrite()), converted, grid, numbers)
    finally:
        torch.Tensor.numpy = refusing
    _LAUNCHED.append(kernel.fn.__name__)


class SimulatedProfiler:
    def __init__(self, flush: Any) -> None: ...

    def warm_up(self) -> None: ...

    def records(self, work: Any) -> list[dict[str, Any]]:
        _LAUNCHED.clear()
        work()
        return [{"name": name, "duration_ns": 1000, "stream": 0} for name in _LAUNCHED]


class HostOnly(grader.Grader):
    def probe(self) -> None:
        self.use_host_copies()

    def miscalibrate(self, problem: str, overhead_s: float) -> None:
        """Replace the time of a problem's empty rounds by a wrong one, as if measured on a busy machine."""
        digest = hashlib.sha256(problem.encode()).hexdigest()
        wrong = Overhead(overhead_s, 0.0, 0.0)
        self._state.overheads[digest] = Overheads(wrong, wrong)


def pretend() -> None:
    """Replace what needs a GPU, in this process and all that it forks."""
    interpreter.install()
    names.replace_launcher(launch_at_once)
    cuda_driver.DEVICE = "cpu"
    cuda: Any = torch.cuda
    cuda.init = lambda: None
    cuda.set_stream = lambda stream: None
    cuda.default_stream = lambda: SimpleNamespace(cuda_stream=0)
    cuda.get_device_properties = lambda index: SimpleNamespace(name="Simulated H100", major=9, minor=0, L2_cache_size=0)
    for module in (warm_up, grader):
        module.CudaDriver = SimulatedDriver
    warm_up.Profiler = SimulatedProfiler
    warm_up.load_driver = lambda: None
    timer._ROUND_S = 0.0
    timer._FIRST_CALLS = candidate_start._FIRST_CALLS = 4


def new_grader() -> HostOnly:
    """Fork a fork server and return a grader on it, as a worker on a GPU does."""
    made = HostOnly(ForkServer(start_fork_server(candidate_main, [], may_fork=True, setup=SETUP)))
    made.probe()
    return made


def main() -> None:
    die_with_parent()
    torch.set_num_threads(1)
    pretend()
    if len(sys.argv) > 1:
        worker.Grader = HostOnly
        worker.serve_worker(socket.socket(fileno=int(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TMPDIR", folder)
        serve_lines()


def serve_lines() -> None:
    """Judge what comes on standard input."""
    host_only = new_grader()
    for line in sys.stdin:
        request = json.loads(line)
        config = JudgeConfig(**request.get("config", {}))
        if "overhead_s" in request:
            host_only.miscalibrate(request["problem"], request["overhead_s"])
        verdict = host_only.grade(request["problem"], request["kernel"], config, {})
        print(verdict.model_dump_json(), flush=True)
        if request.get("has_seconds"):
            print(json.dumps({"phases": host_only.phases, "device": host_only.device_s}), flush=True)


if __name__ == "__main__":
    main()
