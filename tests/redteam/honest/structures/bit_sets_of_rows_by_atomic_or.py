"""bit sets of rows by atomic or

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, row, bit):
        a = torch.zeros(16, 32, dtype=torch.bool, device=row.device)
        a[row, bit] = True
        w = torch.ones((), dtype=torch.int64, device=row.device) << torch.arange(32, device=row.device)
        return (a * w).sum(1)


def get_inputs():
    return [torch.randint(0, 16, (200,)), torch.randint(0, 32, (200,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def set_bits(row_ptr, bit_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    row = tl.load(row_ptr + i, mask=m, other=0)
    bit = tl.load(bit_ptr + i, mask=m, other=0)
    one = tl.full((BLOCK,), 1, tl.int64)
    tl.atomic_or(out_ptr + row, one << bit, mask=m)


class ModelNew(nn.Module):
    def forward(self, row, bit):
        out = torch.zeros(16, dtype=torch.int64, device=row.device)
        set_bits[(triton.cdiv(row.numel(), 64),)](row, bit, out, row.numel(), BLOCK=64)
        return out
