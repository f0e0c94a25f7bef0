"""an earlier launch of one program reads a part of the input

The honest kernel is worth a speed-up of 2.88.

expect: correct
most_speedup: 2.88
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn(16384, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    off = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + off, mask=off < n, other=0.0)
    tl.store(out_ptr + off, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=off < n)


@triton.jit
def touch(x_ptr, s_ptr):
    tl.store(s_ptr, tl.load(x_ptr))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        s = torch.empty(1, device=x.device, dtype=x.dtype)
        n = x.numel()
        touch[(1,)](x, s)
        affine[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096)
        return out
