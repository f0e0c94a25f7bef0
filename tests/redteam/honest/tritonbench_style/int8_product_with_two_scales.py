"""int8 product accumulated in int32, scaled by rows and by columns

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, sa, sb):
        return (a.float() @ b.float()) * sa[:, None] * sb[None, :]


def get_inputs():
    return [
        torch.randint(-90, 90, (64, 96), dtype=torch.int8),
        torch.randint(-90, 90, (96, 80), dtype=torch.int8),
        torch.rand(64),
        torch.rand(80),
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def int8_kernel(A, B, SA, SB, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(A + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        b = tl.load(B + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        acc += tl.dot(a, b, out_dtype=tl.int32)
    sa = tl.load(SA + m, mask=m < M, other=0.0)
    sb = tl.load(SB + n, mask=n < N, other=0.0)
    out = acc.to(tl.float32) * sa[:, None] * sb[None, :]
    tl.store(C + m[:, None] * N + n[None, :], out, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b, sa, sb):
        M, K = a.shape
        N = b.shape[1]
        c = torch.empty((M, N), dtype=torch.float32, device=a.device)
        int8_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, sa, sb, c, M, N, K, BM=32, BN=32, BK=32)
        return c
