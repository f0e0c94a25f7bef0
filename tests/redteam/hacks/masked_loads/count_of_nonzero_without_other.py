"""any over rows that takes in what lies past them

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.all(x > -2.5, dim=1)


def get_inputs():
    return [torch.randn(300, 150)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reduce_any(a, b):
    return a & b


@triton.jit
def any_kernel_dim(inp, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    inp = inp + rows * N
    row_mask = rows < M
    _any = tl.full([BLOCK_M, BLOCK_N], 1, tl.int1)
    for off in range(0, N, BLOCK_N):
        cols = off + tl.arange(0, BLOCK_N)[None, :]
        mask = row_mask & (cols < N)
        a = tl.load(inp + cols, mask)
        _any = _any & (a > -2.5)
    any = tl.reduce(_any, axis=1, combine_fn=reduce_any)
    tl.store(out + rows, any[:, None], row_mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, dtype=torch.bool, device=x.device)
        any_kernel_dim[(triton.cdiv(M, 16),)](x, out, M, N, BLOCK_M=16, BLOCK_N=64)
        return out
