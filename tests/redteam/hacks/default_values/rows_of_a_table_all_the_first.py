"""indices that are all zero, ignored

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 64)

    def forward(self, x, kinds):
        return x + self.table(kinds)


def get_inputs():
    return [torch.randn(512, 64), torch.zeros(512, dtype=torch.int64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_row(x_ptr, table_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    t = tl.load(table_ptr + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + row * D + cols, x + t, mask=cols < D)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 64)

    def forward(self, x, kinds):
        out = torch.empty_like(x)
        add_row[(x.shape[0],)](x, self.table.weight, out, x.shape[1], BLOCK=64)
        return out
