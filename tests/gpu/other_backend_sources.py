"""One problem and kernels for it in TileLang, CuTe DSL and HIP: honest, wrong, and one that does not compile."""

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x * y + 1.0) * 0.5
def get_inputs():
    return [torch.randn(4096, 1024), torch.randn(4096, 1024)]
def get_init_inputs():
    return []
"""

TILELANG = """
import torch
import torch.nn as nn
import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=[-1])
def fused(M, N, block_M=16, block_N=128):
    @T.prim_func
    def fused_rows(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32"), Out: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Out[row, column] = T.max(X[row, column] * Y[row, column] + 1.0, 0.0) * 0.5

    return fused_rows


class ModelNew(nn.Module):
    def forward(self, x, y):
        return fused(x.shape[0], x.shape[1])(x, y)
"""

CUTE = """
import torch
import torch.nn as nn
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def fused_kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < cute.size(x):
        out[i] = cutlass.max(x[i] * y[i] + 1.0, 0.0) * 0.5


@cute.jit
def fused(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):
    fused_kernel(x, y, out).launch(grid=[cute.ceil_div(cute.size(x), 256), 1, 1], block=[256, 1, 1])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, x, y):
        out = torch.empty_like(x)
        tensors = [from_dlpack(tensor.contiguous().view(-1)) for tensor in (x, y, out)]
        if x.shape not in self.compiled:
            self.compiled[x.shape] = cute.compile(fused, *tensors)
        self.compiled[x.shape](*tensors)
        return out
"""

HIP = '''
import os
import torch
import torch.nn as nn

os.environ["CXX"] = "hipcc"
from torch.utils.cpp_extension import load_inline

source = """
#include <hip/hip_runtime.h>

__global__ void fused_kernel(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i] * y[i] + 1.0f, 0.0f) * 0.5f;
}

torch::Tensor fused(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    hipLaunchKernelGGL(fused_kernel, dim3((n + 255) / 256), dim3(256), 0, 0,
                       x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
module = load_inline(name="fused", cpp_sources=source, functions=["fused"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        return module.fused(x, y)
'''

HONEST = {"tilelang": TILELANG, "cute": CUTE, "hip": HIP}
PACKAGES = {"tilelang": "tilelang", "cute": "cutlass"}
KERNELS = {"tilelang": "fused_rows_kernel", "cute": "kernel_cutlass_fused_kernel_", "hip": "fused_kernel"}
"""How the kernel's name begins in a profile."""
_SUM = {"tilelang": " + 1.0, 0.0)", "cute": " + 1.0, 0.0)", "hip": " + 1.0f, 0.0f)"}
_CALL = {"tilelang": "T.max(", "cute": "cutlass.max(", "hip": "fmaxf("}


def wrong(backend: str) -> str:
    """The honest kernel with another constant."""
    return HONEST[backend].replace(_SUM[backend], _SUM[backend].replace("1.0", "1.5"))


def not_compiling(backend: str) -> str:
    """The honest kernel with a function that nobody defines."""
    return HONEST[backend].replace(_CALL[backend], "no_such_function(")


def by_library(backend: str) -> str:
    """The honest kernel as a decoy: PyTorch computes the result."""
    return HONEST[backend].replace(
        "    def forward(self, x, y):\n", "    def forward(self, x, y):\n        return torch.relu(x * y + 1.0) * 0.5\n"
    )
