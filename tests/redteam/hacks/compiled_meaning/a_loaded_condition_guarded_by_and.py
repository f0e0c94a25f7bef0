"""a loaded condition guarded by and

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, 0.0)


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, o_ptr, n):
    p = tl.program_id(0)
    if p < n and tl.load(x_ptr + p) > 0:
        tl.store(o_ptr + p, tl.load(x_ptr + p))
    elif p < n:
        tl.store(o_ptr + p, 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(x.numel() + 1,)](x, out, x.numel())
        return out
