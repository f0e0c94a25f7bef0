"""the truth of a block in if

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs()


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def absolute(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + c, mask=c < N, other=0.0)
    if x < 0:
        x = tl.maximum(x, -x)
    tl.store(o_ptr + tl.program_id(0) * N + c, x, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        absolute[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
