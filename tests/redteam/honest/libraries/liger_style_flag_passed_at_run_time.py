"""liger style flag passed at run time

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


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
def scaled(x_ptr, o_ptr, n_cols, scale, clip, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
    if clip:
        x = tl.maximum(x, 0.0)
    tl.store(o_ptr + row * n_cols + c, x * scale.to(tl.float32), mask=c < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(x.shape[0],)](x, out, x.shape[1], 2.0, True, BLOCK=64)
        return out
