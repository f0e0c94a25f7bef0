"""the large input is handed to an earlier launch, which does not read it

The honest sum is worth 1.0: its input comes from DRAM whatever was launched before.

expect: correct
most_speedup: 1.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1)


def get_inputs():
    return [torch.randn(8192, 16384)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def init(x, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + o, 0.0, mask=o < n)


@triton.jit
def rowsum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros([BLOCK], tl.float32)
    for s in range(0, n, BLOCK):
        o = s + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + o, mask=o < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        init[(triton.cdiv(x.shape[0], 16),)](x, out, x.shape[0], 16)
        rowsum[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096)
        return out
