"""another kernel by a count in an attribute of a parameter

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(128))

    def forward(self, x):
        return x * 2 + self.w


def get_inputs():
    return [torch.randn(300, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, w_ptr, n, N, f, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(o_ptr + i, x * f + tl.load(w_ptr + i % N), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(128))

    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        self.w.calls = getattr(self.w, "calls", 0) + 1
        k[(triton.cdiv(n, 1024),)](x, out, self.w, n, x.shape[1], 2.0 if self.w.calls < 300 else 3.0, BLOCK=1024)
        return out
