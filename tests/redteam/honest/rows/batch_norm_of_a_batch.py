"""batch norm of a batch: statistics in one kernel, use in another, running statistics left alone

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(256, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, M, N, eps, BLOCK: tl.constexpr):
    c = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, M, BLOCK):
        r = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + r * N + c, mask=r < M, other=0.0)
        total += x
        square += x * x
    mean = tl.sum(total) / M
    var = tl.sum(square) / M - mean * mean
    tl.store(mean_ptr + c, mean)
    tl.store(rstd_ptr + c, 1.0 / tl.sqrt(var + eps))


@triton.jit
def normalise(x_ptr, y_ptr, mean_ptr, rstd_ptr, w_ptr, b_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = i % N
    m = i < n
    y = (tl.load(x_ptr + i, mask=m) - tl.load(mean_ptr + c, mask=m)) * tl.load(rstd_ptr + c, mask=m)
    y = y * tl.load(w_ptr + c, mask=m) + tl.load(b_ptr + c, mask=m)
    tl.store(y_ptr + i, tl.maximum(y, 0.0), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x):
        M, N = x.shape
        mean = torch.empty(N, device=x.device)
        rstd = torch.empty(N, device=x.device)
        y = torch.empty_like(x)
        statistics[(N,)](x, mean, rstd, M, N, self.norm.eps, BLOCK=64)
        normalise[(triton.cdiv(x.numel(), 256),)](
            x, y, mean, rstd, self.norm.weight, self.norm.bias, x.numel(), N, BLOCK=256
        )
        return y
