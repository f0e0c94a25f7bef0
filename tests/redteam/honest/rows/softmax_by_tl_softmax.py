"""softmax of the language's own, tl.softmax

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x) * 2.0 + 1.0
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(1024, 100)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    mask = (r < M)[:, None] & (c < N)[None, :]
    at = r[:, None] * N + c[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    x = tl.where(mask, tl.maximum(x, 0.0) * 2.0 + 1.0, float("-inf"))
    x = tl.softmax(x, dim=1, keep_dims=True)
    tl.store(out_ptr + at, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        row_kernel[(triton.cdiv(x.size(0), 8),)](x, out, *x.shape, ROWS=8, BLOCK=128)
        return out
