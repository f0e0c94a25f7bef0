"""a softmax whose values are cut off where normal ones never are

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x, y, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    e = tl.exp(tl.minimum(tl.load(x + r * N + i, mask=i < N, other=float("-inf")), 6.0))
    tl.store(y + r * N + i, e / tl.sum(e, 0), mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], B=128)
        return y
