"""int8 weights dequantised in the product, buffers copied by name

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    """int8 weights, per-channel scales"""

    def __init__(self, i, o):
        super().__init__()
        self.register_buffer("wq", torch.randint(-127, 127, (o, i), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(o) * 0.02)

    def forward(self, x):
        return x @ (self.wq.float() * self.scale[:, None]).T


def get_inputs():
    return [torch.randn(128, 64)]


def get_init_inputs():
    return [64, 48]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def qmm(x, w, s, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xt = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        wt = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        acc += tl.dot(xt, wt.to(tl.float32), input_precision="ieee")
    acc *= tl.load(s + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.register_buffer("wq", torch.randint(-127, 127, (o, i), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(o) * 0.02)

    def forward(self, x):
        M, K = x.shape
        N = self.wq.shape[0]
        y = torch.empty((M, N), device=x.device)
        qmm[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, self.wq, self.scale, y, M, N, K, BM=16, BN=16, BK=32)
        return y
