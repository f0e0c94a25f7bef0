"""parameters of a wrong shape, never used

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.relu(self.norm(x)) * self.scale


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    mean = tl.sum(x, axis=0) / D
    c = tl.where(cols < D, x - mean, 0.0)
    y = c / tl.sqrt(tl.sum(c * c, axis=0) / D + 1e-5)
    tl.store(out_ptr + row * D + cols, tl.maximum(y, 0.0), mask=cols < D)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        out = torch.empty_like(x)
        norm[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
