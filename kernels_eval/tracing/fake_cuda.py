"""Tracing process: a virtual GPU. Host code written for a GPU runs on it unchanged, on a machine without one.

Covers `device="cuda"`, `.cuda()`, streams, device properties, CUDA graphs and Triton's active driver. The properties
are those of the hardware whose speed is estimated.
"""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
import triton.testing
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget

from kernels_eval.interpreter.triton_patches.names import set_driver
from kernels_eval.trace.schema import FIRST_WEIGHT
from kernels_eval.tracing import fake_compiler, fake_streams, generated_code
from kernels_eval.tracing.fake_streams import MILLISECONDS, Event, Inert
from kernels_eval.tracing.traced_tensor import TracedTensor
from kernels_eval.tracing.tracer import Tracer, storages

_NAME = "NVIDIA H100 80GB HBM3"
_CAPABILITY = (9, 0)
_PROCESSORS = 132
_PROPERTIES = types.SimpleNamespace(
    name=_NAME,
    major=9,
    minor=0,
    total_memory=80 << 30,
    multi_processor_count=_PROCESSORS,
    warp_size=32,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    max_threads_per_multi_processor=2048,
    L2_cache_size=50 << 20,
    gcnArchName="",
)
_DRIVER_PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": _PROCESSORS,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}


class OnCpu(TorchDispatchMode):
    """Creates tensors for `cuda` in CPU memory. Active while the candidate is loaded and built."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator on the CPU."""
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if kwargs and kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **(kwargs or {}))


def install(tracer: Tracer) -> None:
    """Replace torch.cuda and Triton's driver in this process."""
    install_device(_CAPABILITY)
    generated_code.install()
    fake_compiler.install(tracer)
    set_driver(VirtualDriver())
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _benchmark
    cuda: Any = torch.cuda
    accelerator: Any = torch.accelerator
    cuda.synchronize = accelerator.synchronize = lambda *_, **__: tracer.synchronise()
    fake_streams.install(cuda, tracer)
    _install_graphs(torch.cuda, tracer)


def install_device(capability: tuple[int, int]) -> None:
    """Replace the functions of torch.cuda that ask the device or wait for it, and those that move tensors to it."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": _NAME,
        "get_device_capability": capability,
        "get_device_properties": _PROPERTIES,
        "get_arch_list": ["sm_90"],
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "mem_get_info": (80 << 30, 80 << 30),
    }
    for name, answer in answers.items():
        setattr(cuda, name, _answering(answer))
    for name in ("_lazy_init", "init", "synchronize", "set_device", "empty_cache", "manual_seed", "manual_seed_all",
                 "reset_peak_memory_stats", "ipc_collect"):  # fmt: skip
        setattr(cuda, name, _answering(None))
    for name in ("device", "device_of", "stream"):
        setattr(cuda, name, Inert)
    for name in ("Stream", "ExternalStream"):
        setattr(cuda, name, Inert)
    cuda.Event = Event
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, Inert)
    torch.Tensor.cuda = torch.Tensor.pin_memory = _stay  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.is_pinned = _answering(False)  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.to = _without_device(torch.Tensor.to)  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.Module.cuda = _stay  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.Module.to = _without_device(torch.nn.Module.to)  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _on_the_host(getattr(torch, name)))
    cuda._DeviceGuard = Inert
    _install_generic(cuda)
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(cuda.nvtx, name, _answering(0))
    torch.backends.cudnn.enabled = False  # else a CUDA build of PyTorch asks the driver, which is not there


def _install_generic(cuda: Any) -> None:
    """Make the functions of PyTorch that mean whichever device there is mean torch.cuda."""
    torch.get_device_module = _answering(cuda)  # pyright: ignore[reportAttributeAccessIssue]
    accelerator: Any = torch.accelerator
    accelerator.current_accelerator = _answering(torch.device("cuda"))
    accelerator.current_device_index = accelerator.current_device_idx = cuda.current_device
    accelerator.set_device_index = accelerator.set_device_idx = accelerator.set_stream = _answering(None)
    accelerator.device_index = Inert
    for name in ("is_available", "device_count", "current_stream", "empty_cache", "memory_allocated",
                 "max_memory_allocated", "memory_reserved", "reset_peak_memory_stats"):  # fmt: skip
        setattr(accelerator, name, getattr(cuda, name))


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _stay(self: Any, *_: Any, **__: Any) -> Any:
    return self


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"))


def _without_device(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `.to(...)` that ignores the device: there is only one."""

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept = tuple(value for value in args if not _is_device(value))
        kwargs.pop("device", None)
        return convert(self, *kept, **kwargs) if kept or kwargs else self

    return to


def _on_the_host(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return a creation function for Python values. The tensor stays on the CPU until its first use uploads it."""

    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, TracedTensor):
            return data
        kwargs.pop("device", None)
        return create(data, *args, **kwargs)

    return make


def _benchmark(fn: Callable[[], Any], *_: Any, **named: Any) -> Any:
    """Call a function once, in place of Triton's `do_bench`; its time is the same for every function."""
    fn()
    quantiles = named.get("quantiles")
    if quantiles is not None:
        times = [MILLISECONDS] * len(quantiles)
        return times[0] if len(times) == 1 else times
    return [MILLISECONDS] if named.get("return_mode") == "all" else MILLISECONDS


class VirtualDriver:
    """The part of Triton's driver interface that host code uses, and the compiler."""

    def __init__(self, architecture: int = 90) -> None:
        """`architecture`: the one that kernels are compiled for."""
        self._target = GPUTarget("cuda", architecture, 32)
        self.utils = types.SimpleNamespace(get_device_properties=_answering(_DRIVER_PROPERTIES))

    def get_current_device(self) -> int:
        """Return the index of the only device."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return the device of all tensors."""
        return torch.device("cuda", 0)

    def get_current_target(self) -> GPUTarget:
        """Return the target that kernels are compiled for."""
        return self._target

    def get_device_interface(self) -> Any:
        """Return torch.cuda."""
        return torch.cuda

    def get_current_stream(self, device: int) -> int:
        """Return the only stream."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing."""

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return a small buffer."""
        return torch.empty(256, dtype=torch.int)

    def clear_cache(self, cache: Any) -> None:
        """Do nothing."""

    def get_benchmarker(self) -> Callable[..., Any]:
        """Return a benchmark function with the same time for every call."""
        return _benchmark


def _install_graphs(cuda: Any, tracer: Tracer) -> None:
    """Replace CUDA graphs: operations of a capture are recorded, and repeated at each replay.

    As on a GPU, nothing runs during a capture, and a replay uses the tensors of the capture. Every call has new input
    tensors. A graph captured over an input cannot be replayed in a later call: a GPU would read freed memory.
    """

    class Graph(_Graph):
        """CUDA graph bound to this process's tracer."""

        kernels_eval_tracer = tracer

    cuda.CUDAGraph = Graph
    cuda.graph = _Capture
    cuda.graph_pool_handle = lambda *_, **__: (0, 0)
    cuda.is_current_stream_capturing = lambda: tracer.captured is not None


class _Graph:
    """Replacement of torch.cuda.CUDAGraph."""

    kernels_eval_tracer: Tracer

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept and ignore any arguments."""
        self.kernels_eval_commands: list[dict[str, Any]] = []
        self.kernels_eval_made: list[int] = []
        self.kernels_eval_call = 0
        self.kernels_eval_reads_input = False

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Start to record commands."""
        tracer = self.kernels_eval_tracer
        if tracer.captured is not None:
            raise RuntimeError("a graph is being captured already")
        tracer.captured = []
        self.kernels_eval_call = tracer.calls

    def capture_end(self) -> None:
        """Stop recording."""
        tracer = self.kernels_eval_tracer
        if tracer.captured is None:
            raise RuntimeError("no graph is being captured")
        self.kernels_eval_commands, tracer.captured = tracer.captured, None
        known: set[int] = set()
        for command in self.kernels_eval_commands:
            taken = storages([command.get("arguments"), command.get("named"), command.get("reached")])
            self.kernels_eval_reads_input |= any(number < FIRST_WEIGHT for number in taken)
            self.kernels_eval_made += storages(command.get("results")) - taken - known
            known |= taken | set(self.kernels_eval_made)

    def replay(self) -> None:
        """Append the recorded commands again."""
        tracer = self.kernels_eval_tracer
        if self.kernels_eval_reads_input and self.kernels_eval_call != tracer.calls:
            raise RuntimeError("this graph was captured over an input of an earlier call, which is gone")
        tracer.command({"kind": "free", "storages": list(self.kernels_eval_made)})
        for command in self.kernels_eval_commands:
            tracer.command(command)

    def reset(self) -> None:
        """Drop the recorded commands."""
        self.kernels_eval_commands, self.kernels_eval_made = [], []

    def pool(self) -> tuple[int, int]:
        """Return an identifier of its memory pool."""
        return (0, 0)


class _Capture(contextlib.AbstractContextManager["_Capture"]):
    """Replacement of torch.cuda.graph."""

    def __init__(self, cuda_graph: _Graph, *_: Any, **__: Any) -> None:
        """Capture into a graph; pool, stream and mode are ignored."""
        self.kernels_eval_graph = cuda_graph

    def __enter__(self) -> "_Capture":
        """Begin the capture."""
        self.kernels_eval_graph.capture_begin()
        return self

    def __exit__(self, *_: object) -> None:
        """End the capture."""
        self.kernels_eval_graph.capture_end()
