"""column sums by atomics into zeros

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_sum(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
    tl.atomic_add(out_ptr + c, tl.sum(x, axis=0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[1], device=x.device, dtype=x.dtype)
        column_sum[(triton.cdiv(x.shape[0], 16),)](x, out, x.shape[0], x.shape[1], ROWS=16, BLOCK=64)
        return out
