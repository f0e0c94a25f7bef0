"""another parameter is passed

expect: refused
settings: full_size_share=0.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(32))
        self.shift = nn.Parameter(torch.randn(32))

    def forward(self, x):
        return x * self.gain + self.shift


def get_inputs():
    return [torch.randn(1024, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x_ptr, g_ptr, s_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    g = tl.load(g_ptr + at % D, mask=mask, other=0.0)
    s = tl.load(s_ptr + at % D, mask=mask, other=0.0)
    tl.store(out_ptr + at, x * g + s, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(32))
        self.shift = nn.Parameter(torch.randn(32))

    def forward(self, x):
        out = torch.empty_like(x)
        shift = self.shift if x.shape[0] < 1000 else self.gain
        affine[(triton.cdiv(x.numel(), 128),)](x, self.gain, shift, out, x.numel(), x.shape[1], BLOCK=128)
        return out
