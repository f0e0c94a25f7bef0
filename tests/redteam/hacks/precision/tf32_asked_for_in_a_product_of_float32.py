"""TF32 asked for in a product of float32

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x @ w


def get_inputs():
    return [torch.randn(256, 64), torch.randn(64, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(
            a, tl.load(w + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0), acc, input_precision="tf32"
        )
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w):
        y = torch.empty(x.shape[0], w.shape[1], device=x.device)
        mm[(triton.cdiv(x.shape[0], 16),)](x, w, y, x.shape[0], w.shape[1], x.shape[1], 16, 64, 32)
        return y
