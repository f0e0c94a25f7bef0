"""mixed: a blend of the kernel's garbage with weight zero inside the kernel

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(600, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + r * N + c, g / (tl.sum(x * x, axis=0) / N + 1.0), mask=c < N)


@triton.jit
def blend(x, y, o, N, w, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(x + r * N + c, mask=c < N)
    b = tl.load(y + r * N + c, mask=c < N)
    tl.store(o + r * N + c, w * tl.exp(-tl.abs(a)) + (1.0 - w) * b, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.nn.functional.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)
        out = torch.empty_like(x)
        blend[(M,)](x, y, out, N, 0.0, BLOCK=128)
        return out
