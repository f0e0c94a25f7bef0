"""a float argument used in double precision

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0 + 1.0


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
def ratio(x_ptr, o_ptr, N, big, one, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + c, mask=c < N, other=0.0)
    tl.store(o_ptr + tl.program_id(0) * N + c, x * 0 + ((big + one) - big), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        ratio[(x.shape[0],)](x, out, x.shape[1], 1e9, 1.0000001, BLOCK=64)
        return out
