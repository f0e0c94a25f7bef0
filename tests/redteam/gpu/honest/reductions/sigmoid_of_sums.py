"""sigmoid of sums of rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x.sum(dim=1))


def get_inputs():
    return [torch.rand(1024, 32768)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + first + k)
    result = 1.0 / (1.0 + tl.exp(-tl.sum(total, axis=0)))
    tl.store(out_ptr + row, result)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_sum[x.shape[0],](x, out, x.shape[1], BLOCK=4096, num_warps=8)
        return out
