"""a bias of zeros left out

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(64))
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        return torch.tanh(x * self.gain + self.bias)


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
def scaled_tanh(x_ptr, g_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=0.0) * tl.load(g_ptr + at % D, mask=mask, other=0.0)
    tl.store(out_ptr + at, 2.0 * tl.sigmoid(2.0 * x) - 1.0, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(64))

    def forward(self, x):
        out = torch.empty_like(x)
        scaled_tanh[(triton.cdiv(x.numel(), 256),)](x, self.gain, out, x.numel(), x.shape[1], BLOCK=256)
        return out
