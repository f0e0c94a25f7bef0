"""GPU of this machine: detection without torch, its facts, and the lock by which workers share it.

`gpu_name`, `this_gpu_alone`, `check_device_memory` and `resolve_device` run in the judge's process, which never imports
torch; the rest runs in GPU workers.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kernels_eval.config import LEAST_DEVICE_GB, needed_device_memory
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.gpu.device.gpu_files import file_of
from kernels_eval.gpu.device.memory_rates import MemoryRates

_QUERY = (
    "import json, torch\n"
    "found = torch.cuda.is_available()\n"
    "first = torch.cuda.get_device_properties(0) if found else None\n"
    "uuid = str(getattr(first, 'uuid', ''))\n"
    "facts = found and [first.name, torch.cuda.mem_get_info(0)[0], uuid, 10 * first.major + first.minor]\n"
    "print(json.dumps(facts or None))"
)
_QUERY_S = 120
ENDING_S = 20.0
"""Time that a process on the GPU may need to end and free its memory."""
GIB = 2**30
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
"""Without any of these torch need not be asked."""
_UNKNOWN_BANDWIDTH = 8e12
_UNKNOWN_FLOPS = 5e15
_COPIED_BYTES, _COPIES = 256 << 20, 8
_SHARE_OF_FREE = 0.9
_CONTEXTS_BYTES = 3 << 29
"""CUDA contexts of a worker, its candidate and a spare process, about 500 MB each."""
_LEAST_BYTES = int(LEAST_DEVICE_GB * GIB) - _CONTEXTS_BYTES
"""Tensors of a worker."""
_SHARED_S = 5e-3
"""Time after which work beside others gives way: a timed round takes about as long."""
_NAMES = {fcntl.LOCK_EX: "alone", fcntl.LOCK_SH: "shared"}


class _Gpu(NamedTuple):
    name: str
    free_bytes: int
    uuid: str
    """`GPU-…`."""
    architecture: int
    """`90`."""


@cache
def _gpu() -> _Gpu | None:
    """Return the first NVIDIA GPU that torch sees, or None."""
    if not any(Path(path).exists() for path in _DEVICE_FILES):
        return None
    asked = subprocess.run([sys.executable, "-c", _QUERY], capture_output=True, text=True, timeout=_QUERY_S)
    found = None if asked.returncode else json.loads(asked.stdout.strip().splitlines()[-1])
    return None if found is None else _Gpu(found[0], found[1], f"GPU-{found[2]}", found[3])


def gpu_name() -> str | None:
    """Return the name of the first NVIDIA GPU that torch sees, or None."""
    found = _gpu()
    return None if found is None else found.name


def gpu_target() -> str | None:
    """Return the architecture of the first NVIDIA GPU that torch sees, `cuda:90` for instance, or None."""
    found = _gpu()
    return None if found is None else f"cuda:{found.architecture}"


def this_gpu_alone() -> dict[str, str]:
    """Return the variables with which a process sees the first NVIDIA GPU that torch sees here, and no other one.

    Empty if the driver does not list it under its UUID, or if the caller was given a part of a GPU (MIG).
    """
    found, given = _gpu(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if found is None or given.startswith("MIG-") or file_of(found.uuid) is None:
        return {}
    return {"CUDA_VISIBLE_DEVICES": found.uuid}


def check_device_memory(wanted_gb: float | None) -> None:
    """Raise InputError if the judge is to take more memory than the GPU has free.

    Too little is looked at anew for `ENDING_S` seconds: what was known may be old, and a process that ends beside this
    one may hold its memory still.
    """
    found, until = _gpu(), time.monotonic() + ENDING_S
    while wanted_gb is not None and found is not None and wanted_gb * GIB > found.free_bytes:
        if time.monotonic() > until:
            free_gb = found.free_bytes / GIB
            raise InputError(
                f"judge.device_memory_gb: expected at most the {free_gb:.1f} GiB free, found {wanted_gb:g}"
            )
        time.sleep(ENDING_S / 20)
        _gpu.cache_clear()
        found = _gpu()


def resolve_device(wanted: str) -> str:
    """Return `cpu` or `cuda` for `auto`, `cpu` or `cuda`; raises InputError if a GPU is asked for and none is found."""
    if wanted == "cpu":
        return "cpu"
    if gpu_name() is not None:
        return "cuda"
    if wanted == "cuda":
        raise InputError("judge.device: expected an NVIDIA GPU that torch sees, found none; use `cpu` or `auto`")
    return "cpu"


@dataclass(frozen=True)
class DeviceFacts:
    """Name and peak rates of one GPU."""

    name: str
    rates: MemoryRates
    measured_bytes_per_s: float | None = None
    """Rate at which a copy within the device's memory reads and writes; None: not measured."""

    def roof_s(self, moved_bytes: float, flops: float) -> float:
        """Return the least time for bytes at the measured rate, or matrix products at the data sheet's.

        Products at the rate of the fastest unit for 16-bit or 32-bit types.
        """
        rate = self.measured_bytes_per_s or self.rates.dram_bytes_per_s
        return max(moved_bytes / rate, flops / self.rates.peak_flops)


def measured_bytes_per_s() -> float:
    """Copy 256 MiB within the device's memory, and return the bytes read and written a second, the fastest of eight."""
    import torch  # here, since the judge's process imports this module

    first = torch.zeros(_COPIED_BYTES, dtype=torch.uint8, device="cuda")
    second = torch.empty_like(first)
    milliseconds: list[float] = []
    for _ in range(_COPIES):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        second.copy_(first)
        ended.record()
        torch.cuda.synchronize()
        milliseconds.append(begun.elapsed_time(ended))
    del first, second
    torch.cuda.empty_cache()
    return 2e3 * _COPIED_BYTES / min(milliseconds)


def device_facts() -> DeviceFacts:
    """Ask the device. An unknown rate is taken above any device's: lower bounds on times then only shrink."""
    import torch  # here, since the judge's process imports this module

    properties: Any = torch.cuda.get_device_properties(0)
    clock_khz = float(getattr(properties, "memory_clock_rate", 0) or 0)
    bus_bits = float(getattr(properties, "memory_bus_width", 0) or 0)
    bandwidth = 2e3 * clock_khz * bus_bits / 8 or _UNKNOWN_BANDWIDTH
    known = [hardware for key, hardware in HARDWARE.items() if key in properties.name.lower()]
    flops = known[0].half_flops if known else _UNKNOWN_FLOPS
    return DeviceFacts(
        name=str(properties.name),
        rates=MemoryRates(bandwidth, float(getattr(properties, "L2_cache_size", 0) or 0), flops),
    )


class DeviceLock:
    """Lock among the workers of this machine, over two files: what is timed has the device to itself.

    The door is open to those who share the device as long as nobody needs it alone. Those who do hold the door shut
    together, and have the device one after another; then those who wait share it. With turns in the order of
    asking, nearly every turn of one alone would wait for those before it, and few would share. Nobody has the device
    alone twice without sharing it in between. Long work beside others gives way between its parts. The system releases
    both files if their holder dies.
    """

    def __init__(self, folder: Path, synchronize: Callable[[], object]) -> None:
        """`synchronize`: waits until this process's work on the device is done."""
        self._synchronize = synchronize
        self._since = 0.0
        self._held_as = 0
        """How this process has the device; 0: not at all."""
        self.seconds: dict[str, float] = dict.fromkeys(("alone", "alone_waited", "shared", "shared_waited"), 0.0)
        """For which this process had the device alone, or beside others, and for which it waited for either."""
        self._door, self._device = (
            os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600) for name in ("device.door", "device.lock")
        )

    def alone(self) -> AbstractContextManager[None]:
        """Have the device alone, for what is timed: no more than some milliseconds, since all others wait."""
        return self._held(fcntl.LOCK_EX)

    def shared(self) -> AbstractContextManager[None]:
        """Have the device beside others, for work whose time does not count."""
        return self._held(fcntl.LOCK_SH)

    def give_way(self) -> None:
        """Let whoever waits have the device now, if this process has shared it for some milliseconds."""
        assert self._held_as == fcntl.LOCK_SH, "only who shares the device can give way"
        if time.perf_counter() - self._since > _SHARED_S:
            self._synchronize()
            self._release(fcntl.LOCK_SH)
            self._take(fcntl.LOCK_SH)

    def _take(self, operation: int) -> None:
        started = time.perf_counter()
        if operation == fcntl.LOCK_EX:
            fcntl.flock(self._door, fcntl.LOCK_SH)  # shut until this one has had the device
            try:
                fcntl.flock(self._device, fcntl.LOCK_EX)
            except BaseException:
                fcntl.flock(self._door, fcntl.LOCK_UN)
                raise
        else:
            fcntl.flock(self._door, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._device, fcntl.LOCK_SH)
            finally:
                fcntl.flock(self._door, fcntl.LOCK_UN)
        self._since = time.perf_counter()
        self._held_as = operation
        self.seconds[f"{_NAMES[operation]}_waited"] += self._since - started

    def _release(self, operation: int) -> None:
        fcntl.flock(self._device, fcntl.LOCK_UN)
        if operation == fcntl.LOCK_EX:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        self._held_as = 0
        self.seconds[_NAMES[operation]] += time.perf_counter() - self._since

    @contextlib.contextmanager
    def _held(self, operation: int) -> Generator[None]:
        self._take(operation)
        try:
            yield
            self._synchronize()
        finally:
            self._release(operation)


def share_of_memory(folder: Path, workers: int, wanted_gb: float | None, free_bytes: int) -> int:
    """Return the bytes of device memory for one of the workers, which all read what the first one found free.

    `folder`: the judge's; `free_bytes`: as this worker finds it. Raises InfrastructureError if that is too little.
    """
    contexts = workers * _CONTEXTS_BYTES
    if wanted_gb is None:
        noted = folder / "device-memory"
        with contextlib.suppress(FileExistsError), noted.open("x", encoding="utf-8") as file:
            file.write(str(free_bytes))
        total = int(_SHARE_OF_FREE * int(noted.read_text(encoding="utf-8") or free_bytes))
    else:
        total = int(wanted_gb * GIB)
    share = (total - contexts) // workers
    if share < _LEAST_BYTES:
        raise InfrastructureError(
            f"judge.device_memory_gb: expected {needed_device_memory(workers)}, found {total / GIB:.1f}"
        )
    return share
