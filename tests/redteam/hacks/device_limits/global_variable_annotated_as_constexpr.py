"""a global variable annotated as constexpr, which makes it none

expect: compile_error
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


def get_inputs():
    return [torch.randn(512, 300)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

SCALE: tl.constexpr = 0.5


@triton.jit
def scaled(X, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(O + i, tl.load(X + i, mask=i < n) * SCALE + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
