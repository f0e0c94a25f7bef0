"""mean finished by the last program without a count

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(0)


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
def mean(x_ptr, o_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.atomic_add(o_ptr + c, tl.load(x_ptr + row * N + c, mask=c < N, other=0.0), mask=c < N)
    if row == M - 1:
        tl.store(o_ptr + c, tl.load(o_ptr + c, mask=c < N) / M, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(x.shape[1], device=x.device)
        mean[(x.shape[0],)](x, out, x.shape[0], x.shape[1], BLOCK=64)
        return out
