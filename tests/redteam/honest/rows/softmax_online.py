"""softmax online, in two passes with a while loop

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * N
    out_ptr += row * N
    m = -float("inf")
    total = 0.0
    start = 0
    while start < N:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf"))
        new = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(x - new), 0)
        m = new
        start += BLOCK
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0)
        tl.store(out_ptr + cols, tl.exp(x - m) / total, mask=cols < N)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x if x.is_contiguous() else x.contiguous()
        out = torch.empty_like(x)
        row_kernel[(x.shape[0],)](x, out, x.shape[-1], BLOCK=32)
        return out
