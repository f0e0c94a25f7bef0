"""tl.dot of bfloat16 tiles

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x @ w


def get_inputs():
    return [torch.randn(256, 64).bfloat16(), torch.randn(64, 48).bfloat16()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(x, w, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    b = tl.load(w + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
    tl.store(y + m[:, None] * N + n[None, :], tl.dot(a, b).to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w):
        y = x.new_empty(x.shape[0], w.shape[1])
        mm[(triton.cdiv(x.shape[0], 32),)](x, w, y, x.shape[0], w.shape[1], K=x.shape[1], BM=32, BN=64)
        return y
