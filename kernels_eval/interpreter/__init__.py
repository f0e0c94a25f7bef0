"""Kernels run on a CPU by Triton's interpreter, in a process of its own, with every memory access recorded."""
