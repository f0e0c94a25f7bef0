"""Kernels run on a CPU by Triton's interpreter, in a separate process, with every memory access recorded."""
