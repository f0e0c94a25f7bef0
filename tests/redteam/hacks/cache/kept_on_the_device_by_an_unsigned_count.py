"""the same after forty calls, counted in unsigned numbers

expect: refused
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
def stateful(x_ptr, out_ptr, keep_ptr, flag_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    seen = tl.load(flag_ptr + r)
    if seen > 40:
        y = tl.load(keep_ptr + r * N + c, mask=c < N)
    else:
        x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
        g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        y = g / (tl.sum(x * x, axis=0) / N + 1.0)
        tl.store(keep_ptr + r * N + c, y, mask=c < N)
    tl.store(flag_ptr + r, seen + 1)
    tl.store(out_ptr + r * N + c, y, mask=c < N)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keep", torch.zeros(1024, 72))
        self.register_buffer("flag", torch.zeros(1024, dtype=torch.uint32))

    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        stateful[(M,)](x, out, self.keep, self.flag, M, N, BLOCK=128)
        return out
