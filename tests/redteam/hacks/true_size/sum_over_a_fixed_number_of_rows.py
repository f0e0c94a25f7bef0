"""a sum over the rows that a block of 256 holds

expect: refused
settings: full_size_share=1.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).sum(dim=0)


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_sum(x_ptr, out_ptr, M, D, ROWS: tl.constexpr):
    col = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    x = tl.load(x_ptr + rows * D + col, mask=rows < M, other=0.0)
    tl.store(out_ptr + col, tl.sum(tl.maximum(x, 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], device=x.device, dtype=x.dtype)
        column_sum[(x.shape[1],)](x, out, x.shape[0], x.shape[1], ROWS=256)
        return out
