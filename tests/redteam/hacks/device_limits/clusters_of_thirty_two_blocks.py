"""clusters of thirty two blocks

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(o + i, tl.exp(v), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024, num_ctas=32)
        return o
