"""A small row-tile kernel, as candidates are, and the problem that it solves: what the warm processes rehearse with, and what
shows that a worker is sound.
"""

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        x = torch.sigmoid(torch.relu(x) * 2.0 + torch.exp(x))
        return x / (x.sum(dim=1, keepdim=True) + x.amax(dim=1, keepdim=True))

def get_inputs():
    return [torch.randn(1024, 16)]

def get_init_inputs():
    return []
"""

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
