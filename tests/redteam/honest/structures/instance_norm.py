"""instance norm, Welford in one pass over chunks

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features=num_features)

    def forward(self, x):
        return self.inorm(x)


def get_inputs():
    return [torch.rand(80, 6, 18, 22)]


def get_init_inputs():
    return [6]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def inorm(x_ptr, y_ptr, S, eps, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    base = x_ptr + p * S
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, S, BLOCK):
        i = s + tl.arange(0, BLOCK)
        ok = i < S
        v = tl.load(base + i, mask=ok, other=0.0)
        count = tl.where(ok, count + 1.0, count)
        delta = v - mean
        mean = tl.where(ok, mean + delta / tl.maximum(count, 1.0), mean)
        m2 = tl.where(ok, m2 + delta * (v - mean), m2)
    total = tl.sum(count, 0)
    mu = tl.sum(mean * count, 0) / total
    d = mean - mu
    var = (tl.sum(m2, 0) + tl.sum(d * d * count, 0)) / total
    rstd = tl.rsqrt(var + eps)
    for s in range(0, S, BLOCK):
        i = s + tl.arange(0, BLOCK)
        v = tl.load(base + i, mask=i < S, other=0.0)
        tl.store(y_ptr + p * S + i, (v - mu) * rstd, mask=i < S)


class ModelNew(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.inorm = nn.InstanceNorm2d(num_features)

    def forward(self, x):
        N, C, H, W = x.shape
        y = torch.empty_like(x)
        inorm[(N * C,)](x, y, H * W, self.inorm.eps, BLOCK=128)
        return y
