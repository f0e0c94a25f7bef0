"""CUDA C++ kernels for compositions, in several styles: modules that build with `load_inline`, as KernelBench's do."""
