"""tl.dot of two float8_e4m3fn inputs with scales of rows and columns

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, sa, sb):
        return ((a.float() @ b.float().T) * sa * sb).to(torch.bfloat16)


def get_inputs():
    return [
        torch.randn(128, 256).to(torch.float8_e4m3fn),
        torch.randn(192, 256).to(torch.float8_e4m3fn),
        torch.rand(128, 1),
        torch.rand(1, 192),
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def mm(a, b, sa, sb, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        kk = k0 + rk
        x = tl.load(a + rm[:, None] * K + kk[None, :], mask=(rm[:, None] < M) & (kk[None, :] < K), other=0.0)
        y = tl.load(b + rn[None, :] * K + kk[:, None], mask=(rn[None, :] < N) & (kk[:, None] < K), other=0.0)
        acc = tl.dot(x, y, acc)
    acc = acc * tl.load(sa + rm, mask=rm < M, other=0.0)[:, None] * tl.load(sb + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b, sa, sb):
        c = torch.empty(a.shape[0], b.shape[0], device=a.device, dtype=torch.bfloat16)
        mm[(triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[0], 64))](
            a, b, sa, sb, c, a.shape[0], b.shape[0], a.shape[1], BM=64, BN=64, BK=64
        )
        return c
