"""atomic that adds what masked loads left undefined

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, x):
        return a @ x


def get_inputs():
    return [torch.randn(150, 300), torch.randn(300)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 16, "BLOCK_K": 64}, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_K": 128}, num_warps=4),
    ],
    key=["M", "K"],
    reset_to_zero=["Y"],
)
@triton.jit
def mv_kernel(A, X, Y, M, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    a = tl.load(A + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K))
    x = tl.load(X + k, mask=k < K)
    tl.atomic_add(Y + m, tl.sum(a * x[None, :], axis=1), mask=m < M)


class ModelNew(nn.Module):
    def forward(self, a, x):
        M, K = a.shape
        y = torch.zeros(M, device=a.device, dtype=a.dtype)
        grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(K, meta["BLOCK_K"]))
        mv_kernel[grid](a, x, y, M, K)
        return y
