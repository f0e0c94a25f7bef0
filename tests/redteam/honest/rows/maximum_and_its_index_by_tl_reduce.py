"""maximum and its index by tl.reduce with an own combine function

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        values, indices = torch.max(x, dim=1)
        return values, indices


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
def larger(v1, i1, v2, i2):
    first = (v1 > v2) | ((v1 == v2) & (i1 < i2))
    return tl.where(first, v1, v2), tl.where(first, i1, i2)


@triton.jit
def kernel(x_ptr, v_ptr, i_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf"))
    v, i = tl.reduce((x, c), 0, larger)
    tl.store(v_ptr + row, v)
    tl.store(i_ptr + row, i.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        values = torch.empty(x.shape[0], device=x.device)
        indices = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        kernel[(x.shape[0],)](x, values, indices, x.shape[1], BLOCK=64)
        return values, indices
