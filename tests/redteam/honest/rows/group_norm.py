"""group norm, one program a sample and group

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 8, 10)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm(x_ptr, y_ptr, w_ptr, b_ptr, C, L, G: tl.constexpr, eps, BLOCK: tl.constexpr):
    sample = tl.program_id(0) // G
    group = tl.program_id(0) % G
    size = C // G * L
    base = (sample * C + group * (C // G)) * L
    i = tl.arange(0, BLOCK)
    mask = i < size
    x = tl.load(x_ptr + base + i, mask=mask, other=0.0)
    mean = tl.sum(x) / size
    d = tl.where(mask, x - mean, 0.0)
    y = d / tl.sqrt_rn(tl.sum(d * d) / size + eps)
    channel = group * (C // G) + i // L
    y = y * tl.load(w_ptr + channel, mask=mask) + tl.load(b_ptr + channel, mask=mask)
    tl.store(y_ptr + base + i, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        B, C, L = x.shape
        y = torch.empty_like(x)
        group_norm[(B * 2,)](x, y, self.norm.weight, self.norm.bias, C, L, 2, self.norm.eps, BLOCK=64)
        return y
