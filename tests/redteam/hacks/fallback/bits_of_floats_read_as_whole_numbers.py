"""bits of floats, moved by a kernel, are read as whole numbers, and the host computes of them

expect: rejected
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=0)


def get_inputs():
    return [torch.rand(96)]


def get_init_inputs():
    return []


# --- candidate ---
import itertools
import struct

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bits(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x.to(tl.int32, bitcast=True), mask=i < n)


@triton.jit
def doubled_half(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, (x + x) * 0.5, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        moved = torch.empty(n, dtype=torch.int32, device=x.device)
        bits[(1,)](x, moved, n, BLOCK=128)
        values = [struct.unpack("f", struct.pack("i", each))[0] for each in moved.tolist()]
        sums = torch.tensor(list(itertools.accumulate(values)), device=x.device)
        out = torch.empty_like(x)
        doubled_half[(1,)](sums, out, n, BLOCK=128)
        return out
