"""two products of different sizes by one launch that finds its own

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, c, d):
        return a @ b, c @ d


def get_inputs():
    return [torch.randn(48, 32), torch.randn(32, 64), torch.randn(80, 32), torch.randn(32, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tile(A, B, C, M, N, K: tl.constexpr, pid, BM: tl.constexpr, BN: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    m = (pid // tiles_n) * BM + tl.arange(0, BM)
    n = (pid % tiles_n) * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    a = tl.load(A + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    b = tl.load(B + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
    tl.store(C + m[:, None] * N + n[None, :], tl.dot(a, b, allow_tf32=False), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def grouped_kernel(A, B, C, D, E, F, M0, N0, M1, N1, tiles0, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pid = tl.program_id(0)
    if pid < tiles0:
        tile(A, B, E, M0, N0, K, pid, BM, BN)
    else:
        tile(C, D, F, M1, N1, K, pid - tiles0, BM, BN)


class ModelNew(nn.Module):
    def forward(self, a, b, c, d):
        M0, K = a.shape
        N0 = b.shape[1]
        M1, N1 = c.shape[0], d.shape[1]
        e = torch.empty((M0, N0), dtype=a.dtype, device=a.device)
        f = torch.empty((M1, N1), dtype=a.dtype, device=a.device)
        t0 = triton.cdiv(M0, 16) * triton.cdiv(N0, 16)
        t1 = triton.cdiv(M1, 16) * triton.cdiv(N1, 16)
        grouped_kernel[(t0 + t1,)](a, b, c, d, e, f, M0, N0, M1, N1, t0, K=K, BM=16, BN=16)
        return e, f
