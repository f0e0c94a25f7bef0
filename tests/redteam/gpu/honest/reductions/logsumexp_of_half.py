"""a log-sum-exp of rows, float16

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x / 8, dim=1)


def get_inputs():
    return [torch.randn(1024, 65536, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_lse(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n
    k = tl.arange(0, BLOCK)
    best = -float("inf")
    total = 0.0
    for first in range(0, n, BLOCK):
        i = first + k
        v = tl.load(x_ptr + start + i, mask=i < n, other=-float("inf")).to(tl.float32) * 0.125
        larger = tl.maximum(best, tl.max(v, axis=0))
        total = total * tl.exp(best - larger) + tl.sum(tl.exp(v - larger), axis=0)
        best = larger
    tl.store(out_ptr + row, best + tl.log(total))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_lse[x.shape[0],](x, out, x.shape[1], BLOCK=8192, num_warps=16)
        return out
