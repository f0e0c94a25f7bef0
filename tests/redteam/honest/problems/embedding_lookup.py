"""an embedding of as many rows as there are indices

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, table, index):
        return table[index] * 2.0


def get_inputs():
    return [torch.randn(512, 64), torch.randint(0, 512, (512,))]


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
    tl.store(out_ptr + row * D + cols, x * 2.0, mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, table, index):
        out = torch.empty((index.shape[0], table.shape[1]), device=table.device, dtype=table.dtype)
        look_up[(index.shape[0],)](table, index, out, table.shape[1], BLOCK=64)
        return out
