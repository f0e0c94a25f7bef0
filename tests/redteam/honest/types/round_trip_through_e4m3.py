"""round trip through e4m3

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float8_e4m3fn).to(torch.float32)


def get_inputs():
    return [torch.randn(300, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def round_trip(X, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    tl.store(O + i, x.to(tl.float8e4nv).to(tl.float32), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        round_trip[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
