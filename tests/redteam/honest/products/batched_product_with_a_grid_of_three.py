"""batched product with a grid of three

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.bmm(x, y)


def get_inputs():
    return [torch.randn(8, 32, 48), torch.randn(8, 48, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bmm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2)
    a_ptr += batch * M * K
    b_ptr += batch * K * N
    c_ptr += batch * M * N
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in tl.range(0, K, BK, num_stages=2):
        rk = s + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, y):
        B, M, K = x.shape
        N = y.shape[2]
        out = torch.empty((B, M, N), device=x.device, dtype=x.dtype)
        bmm[(triton.cdiv(M, 16), triton.cdiv(N, 16), B)](x, y, out, M, N, K, BM=16, BN=16, BK=32)
        return out
