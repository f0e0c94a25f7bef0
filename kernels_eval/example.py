"""A small row-tile kernel, as candidates are: what the warm processes rehearse with."""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.sigmoid(tl.maximum(x, 0.0) * 2.0 + tl.exp(x))
    y = tl.sum(x, axis=1)[:, None] + tl.max(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x / y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 4),)](x, out, x.shape[0], x.shape[1], ROWS=4, BLOCK=16)
        return out
"""
