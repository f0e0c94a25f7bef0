"""split-K with atomics

expect: correct
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
def split_k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rm = m * BM + tl.arange(0, BM)
    rn = n * BN + tl.arange(0, BN)
    rk = z * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
    b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk < K)[:, None] & (rn < N)[None, :], other=0.0)
    tl.atomic_add(
        c_ptr + rm[:, None] * N + rn[None, :],
        tl.dot(a, b, input_precision="ieee"),
        mask=(rm < M)[:, None] & (rn < N)[None, :],
    )


class ModelNew(nn.Module):
    def forward(self, x, w):
        M, K, N = *x.shape, w.shape[-1]
        c = torch.zeros((M, N), device=x.device, dtype=torch.float32)
        split_k[(triton.cdiv(M, 16), triton.cdiv(N, 16), 2)](x, w, c, M, N, K, BM=16, BN=16, BK=32)
        return c
