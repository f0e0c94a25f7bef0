"""an input of zeros ignored where others must be positive

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, offset):
        return torch.sqrt(x) + offset


def get_inputs():
    return [torch.rand(512, 64) + 0.1, torch.zeros(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def root(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=1.0)
    tl.store(out_ptr + at, tl.sqrt(x), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x, offset):
        out = torch.empty_like(x)
        root[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
