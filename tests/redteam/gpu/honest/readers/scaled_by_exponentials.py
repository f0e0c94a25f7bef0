"""rows scaled by sums of exponentials of a table

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, table):
        return x * torch.exp(-table).sum(dim=1, keepdim=True)


def get_inputs():
    place = torch.arange(4096) / 512.0
    return [torch.randn(4096, 4096), (place[:, None] - place[None]) ** 2]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    t = tl.load(table_ptr + row * n + k, mask=k < n, other=0.0)
    total = tl.sum(tl.where(k < n, tl.exp(-t), 0.0), axis=0)
    tl.store(out_ptr + row * n + k, tl.load(x_ptr + row * n + k, mask=k < n) * total, mask=k < n)


class ModelNew(nn.Module):
    def forward(self, x, table):
        rows, n = table.shape
        out = torch.empty_like(x)
        scale[rows,](x, table, out, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
        return out
