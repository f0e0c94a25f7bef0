"""Environment package for verifiers and its hub: `vf-eval kernelmill-kernels` finds taskset and environment here."""

from extras.adapters.verifiers import KernelEnv, KernelTaskset

__all__ = ["KernelEnv", "KernelTaskset"]
