"""clamp from above for a clamp from below

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=-0.25)


def get_inputs():
    return [torch.randn(200, 210)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clamp_kernel(X, O, mini, maxi, n, HAS_MIN: tl.constexpr, HAS_MAX: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    if HAS_MIN:
        x = tl.minimum(x, mini)
    if HAS_MAX:
        x = tl.minimum(x, maxi)
    tl.store(O + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        clamp_kernel[(triton.cdiv(n, 1024),)](x, out, -0.25, None, n, HAS_MIN=True, HAS_MAX=False, BLOCK=1024)
        return out
