"""fast quotients by large numbers

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x / (x.abs() * 1e38 + 1e38) * 1e38


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
    m = i < n
    v = tl.load(x + i, mask=m, other=0)
    r = tl.extra.cuda.libdevice.fast_dividef(v, tl.abs(v) * 1e38 + 1e38) * 1e38
    tl.store(o + i, r, mask=m)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        return o
