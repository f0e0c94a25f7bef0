"""product, scaling, residual, clamp and logsumexp as in the fused problems of level 2

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, inner, outer, scale, low, high):
        super().__init__()
        self.matmul = nn.Linear(inner, outer)
        self.scale, self.low, self.high = scale, low, high

    def forward(self, x):
        x = self.matmul(x) * self.scale
        x = torch.clamp(x + x, self.low, self.high)
        x = torch.logsumexp(x, dim=1, keepdim=True)
        return x * F.mish(x)


batch, inner, outer = 128, 64, 48


def get_inputs():
    return [torch.randn(batch, inner)]


def get_init_inputs():
    return [inner, outer, 2.0, -10.0, 10.0]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_clamp_kernel(X, W, B, Y, M, N, K, scale, low, high, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(W + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w, allow_tf32=False)
    y = (acc + tl.load(B + n, mask=n < N, other=0.0)[None, :]) * scale
    y = y + y
    y = tl.minimum(tl.maximum(y, low), high)
    tl.store(Y + m[:, None] * N + n[None, :], y, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def lse_mish_kernel(Y, O, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    y = tl.load(Y + row * N + i, mask=i < N, other=-float("inf"))
    top = tl.max(y, axis=0)
    x = top + tl.log(tl.sum(tl.exp(y - top), axis=0))
    soft = tl.log(1.0 + tl.exp(-tl.abs(x))) + tl.maximum(x, 0.0)
    e = tl.exp(-2.0 * soft)
    tl.store(O + row, x * x * (1.0 - e) / (1.0 + e))


class ModelNew(nn.Module):
    def __init__(self, inner, outer, scale, low, high):
        super().__init__()
        self.matmul = nn.Linear(inner, outer)
        self.scale, self.low, self.high = scale, low, high

    def forward(self, x):
        M, K = x.shape
        N = self.matmul.out_features
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        out = torch.empty((M, 1), device=x.device, dtype=x.dtype)
        linear_clamp_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 16))](
            x, self.matmul.weight, self.matmul.bias, y, M, N, K, self.scale, self.low, self.high, BM=32, BN=16, BK=16
        )
        lse_mish_kernel[(M,)](y, out, N, BLOCK=triton.next_power_of_2(N))
        return out
