"""column sums without atomics

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)


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
def columns(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    old = tl.load(o_ptr + c, mask=c < N, other=0.0)
    tl.store(o_ptr + c, old + tl.load(x_ptr + row * N + c, mask=c < N, other=0.0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[1], device=x.device)
        columns[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
