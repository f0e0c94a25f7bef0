"""RMS norm with inheritance and a forward that calls a method

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [torch.randn(512, 80)]


def get_init_inputs():
    return [80, 1e-5]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms(x_ptr, w_ptr, y_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    scale = tl.math.rsqrt(tl.sum(x * x) / N + eps)
    tl.store(y_ptr + row * N + c, x * scale * tl.load(w_ptr + c, mask=c < N), mask=c < N)


class Base(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.eps = eps

    def _launch(self, x, y):
        rms[(x.shape[0],)](x, self.weight, y, x.shape[1], self.eps, BLOCK=128, num_warps=2)

    def forward(self, x):
        y = torch.empty_like(x)
        self._launch(x, y)
        return y


class ModelNew(Base):
    pass
