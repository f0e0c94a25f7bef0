"""What the zygote of a GPU's workers does once, so that no worker or candidate pays for it: imports and compilers, no CUDA.

CUDA cannot be used on both sides of a fork. Nothing here may initialise it; `is_clean` says whether that held.
"""

import contextlib
import ctypes

import torch

from kernels_eval.compile.triton import warm_up_compiler
from kernels_eval.cpu.worker import WARM_UP_PROBLEM
from kernels_eval.gpu.cuda_driver import CudaDriver, CudaError
from kernels_eval.gpu.operator_guard import DevicePolicy
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference


def rehearse_on_host() -> None:
    """Build a reference, run it and its oracle, use the policy, compile a kernel; all on the CPU."""
    reference = Reference(WARM_UP_PROBLEM, weight_seed=1)
    inputs = reference.draw(32, 1, SecretSeed(b"rehearsal"), own=False)
    reference.expected(inputs, perturbed=True)
    with torch.no_grad(), DevicePolicy(enforce=True):
        torch.empty(4).view(2, 2)
    warm_up_compiler()


def leave_nvml() -> None:
    """Close what torch opened to count GPUs without CUDA (NVML counts its users; torch never signs off).

    A fork closes the descriptors that it inherited: NVML would then talk to whatever has their numbers, and find no GPU.
    """
    with contextlib.suppress(OSError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        while library.nvmlShutdown() == 0:
            pass


def is_clean() -> bool:
    """True where this process can still be forked by those who will use CUDA."""
    try:
        return CudaDriver().is_untouched()
    except CudaError:
        return True  # no driver, no state of it
