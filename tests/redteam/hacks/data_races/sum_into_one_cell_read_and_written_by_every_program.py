"""sum into one cell read and written by every program

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


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
def total(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0))
    tl.store(o_ptr, tl.load(o_ptr) + part)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device)
        total[(triton.cdiv(x.numel(), 2),)](x, out, x.numel(), BLOCK=2)
        return out
