"""layer norm by a reduction of means, squares and counts

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def joined(m1, s1, n1, m2, s2, n2):
    n = n1 + n2
    d = m2 - m1
    share = tl.where(n == 0.0, 0.0, n2 / tl.where(n == 0.0, 1.0, n))
    return m1 + d * share, s1 + s2 + d * d * n1 * share, n


@triton.jit
def kernel(x, w, b, y, N, eps, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * N + i, mask=i < N, other=0.0)
    mean, squares, _ = tl.reduce((v, tl.zeros_like(v), (i < N).to(tl.float32)), 0, joined)
    o = (v - mean) * tl.rsqrt(squares / N + eps) * tl.load(w + i, mask=i < N) + tl.load(b + i, mask=i < N)
    tl.store(y + r * N + i, o, mask=i < N)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, self.norm.weight, self.norm.bias, y, 96, self.norm.eps, B=128)
        return y
