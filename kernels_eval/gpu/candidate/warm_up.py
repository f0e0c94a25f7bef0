"""Warm-up of GPU judging: in the zygote (imports and compilers, no CUDA) and in each spare child (a CUDA context).

CUDA cannot be used on both sides of a fork. Nothing in the zygote may initialise it; `is_cuda_untouched` tells if that
held.
"""

import contextlib
import ctypes
import os
import time
from typing import Any

import torch

from kernels_eval.compile.triton import warm_up_compiler
from kernels_eval.cpu.worker import WARM_UP_PROBLEM
from kernels_eval.gpu.candidate.operator_guard import OperatorGuard
from kernels_eval.gpu.candidate.profiling import Profiler
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.cuda_driver import CudaDriver, CudaError
from kernels_eval.gpu.device.precision import set_precision
from kernels_eval.gpu.device.worker_memory import KEPT_BYTES
from kernels_eval.interpreter.triton_patches.names import load_driver
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference

_DEFAULT_STREAM = 0


def warm_up_zygote() -> None:
    """Build a reference, run it and its oracle, use the operator guard, compile a kernel; all on the CPU."""
    reference = Reference(WARM_UP_PROBLEM, weight_seed=1)
    inputs = reference.draw(32, 1, SecretSeed(b"warm-up"), own=False)
    reference.expected(inputs, perturbed=True)
    with torch.no_grad(), OperatorGuard(enforce=True):
        torch.empty(4).view(2, 2)
    warm_up_compiler()


def close_nvml() -> None:
    """Close NVML, which torch opened to count GPUs without CUDA (NVML counts its users; torch never releases it).

    A fork closes inherited descriptors: NVML would then talk to whatever has their numbers, and find no GPU.
    """
    with contextlib.suppress(OSError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        while library.nvmlShutdown() == 0:
            pass


def is_cuda_untouched() -> bool:
    """True if forks of this process can still use CUDA."""
    try:
        return CudaDriver().is_untouched()
    except CudaError:
        return True  # no driver, no state of it


class Instruments:
    """CUDA driver, waiting and profiler of a candidate's process.

    Everything used here is bound when the object is made, since a candidate can replace attributes of torch.
    """

    def __init__(self) -> None:
        torch.set_num_threads(1)
        set_precision()
        torch.cuda.init()
        some = torch.zeros(1, device=cuda_driver.DEVICE)
        self.driver = CudaDriver()
        self.synchronize = self.driver.synchronize
        self._record, self._wait_for = self.driver.record, self.driver.wait_for
        self._event = self.driver.new_event()
        self._now = time.perf_counter
        self._set_stream: Any = torch.cuda.set_stream
        self._stream = torch.cuda.default_stream()
        self.profiler = Profiler(lambda: some.fill_(1.0))
        if os.environ.get("KERNELS_EVAL_WARM_PROFILER", "1") == "1":
            self.profiler.warm_up()
        load_driver()
        self._memory: Any = torch.cuda.memory_reserved, torch.cuda.memory_allocated, torch.cuda.empty_cache

    def use_default_stream(self) -> None:
        """Make the default stream the current one."""
        self._set_stream(self._stream)

    def release_unused_memory(self) -> None:
        """Give back what torch keeps in this process if it is more than the device has left for the worker."""
        reserved, allocated, release = self._memory
        unused = reserved() - allocated()
        if unused > KEPT_BYTES and unused > self.driver.free_bytes():
            release()

    def unjoined_s(self) -> float:
        """Wait for the default stream, then for the device; returns the time for which other streams went on."""
        self._record(self._event, _DEFAULT_STREAM)
        self._wait_for(self._event)
        before = self._now()
        self.synchronize()
        return self._now() - before


_made: list[Instruments | Exception] = []


def warm_up_child() -> None:
    """Make this process's instruments. A failure is kept for `instruments`: before a job is there, nobody listens."""
    try:
        _made.append(Instruments())
    except Exception as error:  # noqa: BLE001 (kept, and raised by `instruments`)
        _made.append(error)


def instruments() -> Instruments:
    """Return this process's instruments; raises the error that making them raised."""
    if not _made:
        warm_up_child()
    if isinstance(_made[0], Exception):
        raise _made[0]
    return _made[0]
