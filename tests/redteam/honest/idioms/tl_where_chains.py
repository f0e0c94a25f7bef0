"""tl.where chains, tl.full, int arithmetic, casts

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 20).round().clamp(-128, 127).to(torch.int8)


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
def quantise(x_ptr, q_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0.0) * 20.0
    low = tl.floor(v)
    frac = v - low
    even = (low.to(tl.int32) & 1) == 0
    r = tl.where(frac > 0.5, low + 1, tl.where(frac < 0.5, low, tl.where(even, low, low + 1)))
    r = tl.clamp(r, -128.0, 127.0)
    tl.store(q_ptr + i, r.to(tl.int8), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        q = torch.empty_like(x, dtype=torch.int8)
        quantise[(triton.cdiv(x.numel(), 1024),)](x, q, x.numel(), BLOCK=1024)
        return q
