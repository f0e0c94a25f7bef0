"""round trip through e5m2 from bfloat16

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float8_e5m2).to(torch.bfloat16)


def get_inputs():
    return [torch.randn(300, 72).bfloat16()]


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
    tl.store(O + i, x.to(tl.float8e5).to(tl.bfloat16), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        round_trip[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
