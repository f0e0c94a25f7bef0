"""the output's view turned onto the input's storage

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
def touch(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        t = x.kernels_eval_memory.tracer
        out = torch.empty_like(x)
        touch[(1,)](x, out)
        f = t.view_of
        t.view_of = lambda h: f(x) if h is out else f(h)
        return out
