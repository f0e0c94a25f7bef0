"""GRU cell that resets its state without the hidden bias

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.cell = nn.GRUCell(inner, hidden)

    def forward(self, x, h):
        return self.cell(x, h)


def get_inputs():
    return [torch.randn(96, 24), torch.randn(96, 40)]


def get_init_inputs():
    return [24, 40]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(X, W, m, n, M, N, K, first, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(W + (first + n)[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w, allow_tf32=False)
    return acc


@triton.jit
def gru_kernel(X, H, WI, WH, BI, BH, O, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = n < N
    r = product(X, WI, m, n, M, N, K, 0, BM, BN, BK) + product(H, WH, m, n, M, N, N, 0, BM, BN, BK)
    r += (tl.load(BI + n, mask=ok, other=0.0) + tl.load(BH + n, mask=ok, other=0.0))[None, :]
    z = product(X, WI, m, n, M, N, K, N, BM, BN, BK) + product(H, WH, m, n, M, N, N, N, BM, BN, BK)
    z += (tl.load(BI + N + n, mask=ok, other=0.0) + tl.load(BH + N + n, mask=ok, other=0.0))[None, :]
    a = product(X, WI, m, n, M, N, K, 2 * N, BM, BN, BK) + tl.load(BI + 2 * N + n, mask=ok, other=0.0)[None, :]
    b = product(H, WH, m, n, M, N, N, 2 * N, BM, BN, BK) + tl.load(BH + 2 * N + n, mask=ok, other=0.0)[None, :]
    c = (
        2.0
        * tl.sigmoid(
            2.0
            * (
                a
                + tl.sigmoid(r) * (b - tl.load(BH + 2 * N + n, mask=ok, other=0.0)[None, :])
                + tl.load(BH + 2 * N + n, mask=ok, other=0.0)[None, :]
            )
        )
        - 1.0
    )
    mask = (m[:, None] < M) & ok[None, :]
    h = tl.load(H + m[:, None] * N + n[None, :], mask=mask, other=0.0)
    z = tl.sigmoid(z)
    tl.store(O + m[:, None] * N + n[None, :], (1.0 - z) * c + z * h, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, inner, hidden):
        super().__init__()
        self.cell = nn.GRUCell(inner, hidden)

    def forward(self, x, h):
        M, K = x.shape
        N = h.shape[1]
        out = torch.empty_like(h)
        c = self.cell
        gru_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 16))](
            x, h, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh, out, M, N, K, BM=32, BN=16, BK=16
        )
        return out
