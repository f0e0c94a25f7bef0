"""a mask that is false everywhere, ignored

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask):
        return torch.softmax(x.masked_fill(mask, -1e9), dim=1)


def get_inputs():
    return [torch.randn(512, 60), torch.zeros(512, 60, dtype=torch.bool)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * D + cols, x / tl.sum(x, axis=0), mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
