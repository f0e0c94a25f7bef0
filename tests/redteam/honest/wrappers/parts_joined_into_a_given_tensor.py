"""torch.cat with out=

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, b], 1) * 2


def get_inputs():
    return [torch.randn(20, 30), torch.randn(20, 12)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        joined = torch.empty(a.shape[0], a.shape[1] + b.shape[1], device=a.device)
        torch.cat([a, b], dim=1, out=joined)
        y = torch.empty_like(joined)
        twice[(triton.cdiv(y.numel(), 128),)](joined, y, y.numel(), B=128)
        return y
