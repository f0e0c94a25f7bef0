"""a transposition by PyTorch, as a copy into a transposed tensor

expect: correct
most_speedup: 1.5
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x.t()).contiguous()


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    tl.store(y + o, tl.exp(v), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        t = torch.empty(x.shape[1], x.shape[0], device=x.device)
        t.t().copy_(x)
        y = torch.empty_like(t)
        k[(triton.cdiv(x.numel(), 1024),)](t, y, x.numel(), BLOCK=1024)
        return y
