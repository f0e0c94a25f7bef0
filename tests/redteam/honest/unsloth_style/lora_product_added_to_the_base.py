"""linear layer plus its low-rank correction in one kernel

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, outer, rank):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) * 0.1)
        self.a = nn.Parameter(torch.randn(rank, inner) * 0.1)
        self.b = nn.Parameter(torch.randn(outer, rank) * 0.1)

    def forward(self, x):
        return x @ self.weight.t() + 2.0 * (x @ self.a.t()) @ self.b.t()


def get_inputs():
    return [torch.randn(120, 80)]


def get_init_inputs():
    return [80, 72, 16]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lora_kernel(
    X, W, A, B, Y, scale, M, N, K, R: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    r = tl.arange(0, R)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    low = tl.zeros((BLOCK_M, R), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(X + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(W + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        a = tl.load(A + r[None, :] * K + k[:, None], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
        low = tl.dot(x, a, low, input_precision="ieee")
    b = tl.load(B + n[None, :] * R + r[:, None], mask=n[None, :] < N, other=0.0)
    acc += scale * tl.dot(low, b, input_precision="ieee")
    tl.store(Y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, inner, outer, rank):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner) * 0.1)
        self.a = nn.Parameter(torch.randn(rank, inner) * 0.1)
        self.b = nn.Parameter(torch.randn(outer, rank) * 0.1)

    def forward(self, x):
        M, K = x.shape
        N, R = self.b.shape
        y = torch.empty((M, N), dtype=x.dtype, device=x.device)
        lora_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x, self.weight, self.a, self.b, y, 2.0, M, N, K, R=R, BLOCK_M=32, BLOCK_N=32, BLOCK_K=16
        )
        return y
