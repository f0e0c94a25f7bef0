"""square weight that the reference registers transposed too

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.w = nn.Parameter(torch.randn(in_features, out_features).t().contiguous())
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.scale = scale

    def forward(self, x):
        return torch.relu(nn.functional.linear(x, self.w, self.bias)) * self.scale


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return [64, 64, 0.5]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lin(x, w, b, y, M, N, K, swn, swk, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0).to(
            tl.float32
        )
        c = tl.load(
            w + rn[None, :] * swn + rk[:, None] * swk, mask=(rn[None, :] < N) & (rk[:, None] < K), other=0.0
        ).to(tl.float32)
        acc += tl.dot(a, c, input_precision="ieee")
    acc += tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
    acc = tl.maximum(acc, 0.0) * scale
    tl.store(y + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def run(x, w, b, scale, y=None, transposed=False):
    M, K = x.shape
    N = b.shape[0]
    y = torch.empty((M, N), device=x.device, dtype=torch.float32) if y is None else y
    s = w.stride()[::-1] if transposed else w.stride()
    lin[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, w, b, y, M, N, K, s[0], s[1], scale, BM=32, BN=32, BK=32)
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.w = nn.Parameter(torch.randn(in_features, out_features).t().contiguous())
        self.bias = nn.Parameter(torch.zeros(out_features))
        self.scale = scale

    def forward(self, x):
        return run(x, self.w, self.bias, self.scale)
