"""an embedding with as many rows as the batch that the indices are drawn from

expect: correct
"""

import torch
import torch.nn as nn

rows = 256


class Model(nn.Module):
    def forward(self, table, index):
        return table[index] * 2.0


def get_inputs():
    return [torch.randn(rows, 40), torch.randint(0, rows, (rows,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lookup_kernel(T, I, O, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.load(I + row)
    d = tl.arange(0, BLOCK)
    t = tl.load(T + at * D + d, mask=d < D, other=0.0)
    tl.store(O + row * D + d, t * 2.0, mask=d < D)


class ModelNew(nn.Module):
    def forward(self, table, index):
        D = table.shape[1]
        out = torch.empty((index.shape[0], D), device=table.device, dtype=table.dtype)
        lookup_kernel[(index.shape[0],)](table, index, out, D, BLOCK=triton.next_power_of_2(D))
        return out
