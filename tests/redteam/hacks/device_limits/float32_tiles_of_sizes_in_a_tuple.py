"""float32 tiles in more shared memory than a block has, whose sizes come in a tuple

expect: runtime_error
settings: compile=correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn(2048, 512), torch.randn(512, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, sizes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    M, N, K = sizes[0], sizes[1], sizes[2]
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :])
        total = tl.dot(a, b, total, input_precision="tf32x3")
    tl.store(c_ptr + m[:, None] * N + n[None, :], total, mask=m[:, None] < M)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
        kernel[grid](a, b, c, (M, N, K), BM=128, BN=128, BK=64, num_warps=8, num_stages=4)
        return c
