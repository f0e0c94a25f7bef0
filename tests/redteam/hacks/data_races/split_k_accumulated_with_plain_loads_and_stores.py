"""split k accumulated with plain loads and stores

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    n = tl.arange(0, BN)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
    b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
    at = o_ptr + m[:, None] * N + n[None, :]
    keep = (m[:, None] < M) & (n[None, :] < N)
    tl.store(at, tl.load(at, mask=keep, other=0.0) + tl.dot(a, b), mask=keep)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        out = torch.zeros(M, N, device=a.device)
        product[(triton.cdiv(M, 16), triton.cdiv(K, 16))](a, b, out, M, N, K, BM=16, BN=32, BK=16)
        return out
