"""indices made by arithmetic on the size, out of range in a table with fewer rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, table, index):
        return torch.relu(table[index])


def get_inputs():
    rows = 256
    return [torch.randn(rows, 32), (torch.arange(0, 3 * rows, 3)[:rows] * 5) % rows]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def look_up(table_ptr, index_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    source = tl.load(index_ptr + row)
    x = tl.load(table_ptr + source * D + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + row * D + cols, tl.maximum(x, 0.0), mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, table, index):
        out = torch.empty((index.shape[0], table.shape[1]), device=table.device, dtype=table.dtype)
        look_up[(index.shape[0],)](table, index, out, table.shape[1], BLOCK=32)
        return out
