"""a loop over the rows that ends after 64 steps

expect: refused
settings: full_size_share=1.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=0)


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_max(x_ptr, out_ptr, M, D, STEP: tl.constexpr):
    col = tl.program_id(0)
    best = tl.full((STEP,), -float("inf"), tl.float32)
    for step in range(0, 64):
        rows = step * STEP + tl.arange(0, STEP)
        best = tl.maximum(best, tl.load(x_ptr + rows * D + col, mask=rows < M, other=-float("inf")))
    tl.store(out_ptr + col, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[1], device=x.device, dtype=x.dtype)
        column_max[(x.shape[1],)](x, out, x.shape[0], x.shape[1], STEP=8)
        return out
