"""mixed: offsets of groups made by a kernel, one of which host code reads

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 3.0 + 1.0


def get_inputs():
    return [torch.randn(3000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def starts(o, n):
    tl.store(o, 0)
    tl.store(o + 1, n - n // 3)


@triton.jit
def groups(x, y, o, first, n, B: tl.constexpr):
    e = tl.program_id(1)
    size = tl.where(e == 0, first, n - first)
    i = tl.program_id(0) * B + tl.arange(0, B)
    at = tl.load(o + e) + i
    v = tl.load(x + at, mask=i < size, other=0.0)
    tl.store(y + at, tl.maximum(v, 0.0) * 3.0 + 1.0, mask=i < size)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        o = torch.empty(2, dtype=torch.int32, device=x.device)
        starts[(1,)](o, n)
        first = o[1].item()
        y = torch.empty_like(x)
        groups[(triton.cdiv(max(first, n - first), 256), 2)](x, y, o, first, n, B=256)
        return y
