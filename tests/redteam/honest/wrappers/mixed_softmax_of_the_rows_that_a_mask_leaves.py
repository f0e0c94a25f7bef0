"""softmax of the rows that a mask leaves

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, m):
        return torch.softmax(x[m], -1)


def get_inputs():
    return [torch.randn(512, 2048), torch.rand(512) > 0.5]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, y, D, B: tl.constexpr):
    r = tl.program_id(0)
    d = tl.arange(0, B)
    v = tl.load(x + r * D + d, mask=d < D, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + r * D + d, e / tl.sum(e, 0), mask=d < D)


class ModelNew(nn.Module):
    def forward(self, x, m):
        z = x[m]
        y = torch.empty_like(z)
        if z.shape[0]:
            k[(z.shape[0],)](z, y, z.shape[1], B=2048)
        return y
