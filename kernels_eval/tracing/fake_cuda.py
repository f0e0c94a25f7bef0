"""What host code is told of the GPU that its kernels believe to run on: enough for code written for one to run unchanged.

Installed in the candidate's process, on a machine without a GPU: `device="cuda"`, `.cuda()`, streams, device properties,
Triton's active driver. The figures are those of the hardware whose speed is estimated.
"""

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget

from kernels_eval.interpreter.triton_patches.names import set_driver
from kernels_eval.tracing.traced_tensor import TracedTensor

_NAME = "NVIDIA H100 80GB HBM3 (virtual)"
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
    """On while the candidate is loaded and built: what it creates on `cuda` lies in its own memory."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator on the CPU."""
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **(kwargs or {}))


def install() -> None:
    """Put the virtual GPU in place in this process."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": _NAME,
        "get_device_capability": _CAPABILITY,
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
        setattr(cuda, name, _Inert)
    for name in ("Stream", "Event", "ExternalStream"):
        setattr(cuda, name, _Inert)
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, _Inert)
    torch.Tensor.cuda = _stay  # pyright: ignore[reportAttributeAccessIssue]
    torch.Tensor.to = _without_device(torch.Tensor.to)  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.Module.cuda = _stay  # pyright: ignore[reportAttributeAccessIssue]
    torch.nn.Module.to = _without_device(torch.nn.Module.to)  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("tensor", "as_tensor", "asarray"):
        setattr(torch, name, _on_the_host(getattr(torch, name)))
    set_driver(_Driver())


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *_, **__: answer


def _stay(self: Any, *_: Any, **__: Any) -> Any:
    return self


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"))


def _without_device(convert: Callable[..., Any]) -> Callable[..., Any]:
    """`.to(...)` without its device: there is only one place here."""

    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept = tuple(value for value in args if not _is_device(value))
        kwargs.pop("device", None)
        return convert(self, *kept, **kwargs) if kept or kwargs else self

    return to


def _on_the_host(create: Callable[..., Any]) -> Callable[..., Any]:
    """Creation from the host's own values: they are there first, and are uploaded when a kernel wants them."""

    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, TracedTensor):
            return data
        kwargs.pop("device", None)
        return create(data, *args, **kwargs)

    return make


class _Inert(contextlib.AbstractContextManager["_Inert"]):
    """A stream, an event, a device guard: everything happens in order anyway."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take whatever is given."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        """Methods do nothing; `record_event` and the like give another of these."""
        if name.startswith("__"):
            raise AttributeError(name)
        return _answering(None) if name in ("synchronize", "wait_stream", "wait_event", "wait") else _Inert


class _Driver:
    """Triton's driver, as host code asks it."""

    def __init__(self) -> None:
        self.utils = types.SimpleNamespace(get_device_properties=_answering(_DRIVER_PROPERTIES))

    def get_current_device(self) -> int:
        """Return the index of the only device."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Return the device that tensors are on."""
        return torch.device("cuda", 0)

    def get_current_target(self) -> GPUTarget:
        """Return what kernels are compiled for."""
        return GPUTarget("cuda", 90, 32)

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

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Return a stopwatch that is the same for everything."""
        return lambda *_, **__: [1.0, 1.0, 1.0]
