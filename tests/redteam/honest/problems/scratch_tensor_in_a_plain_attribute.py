"""scratch tensor of the form of a parameter, in a plain attribute

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
        self.register_buffer("spare", torch.rand(width))

    def forward(self, x):
        return torch.tanh(x + self.bias)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return [96]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step_kernel(x_ptr, h_ptr, out_ptr, n, M, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    h = tl.load(h_ptr + i % M, mask=i < n, other=0.0)
    e = tl.exp(-2.0 * (x + h))
    tl.store(out_ptr + i, (1.0 - e) / (1.0 + e), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = torch.ones(width)
        self.b = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        assert self.table.tolist() == [1.0] * 96
        out = torch.empty_like(x)
        n = out.numel()
        step_kernel[(triton.cdiv(n, 256),)](x, self.b, out, n, x.shape[1], BLOCK=256)
        return out
