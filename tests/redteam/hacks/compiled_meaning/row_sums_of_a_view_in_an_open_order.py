"""sums of rows of a view whose order is left open

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).view(x.shape[0], 16, 16).sum(2)


def get_inputs():
    return [torch.randn(1024, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, N)
    v = tl.maximum(tl.load(x + r * N + c), 0.0)
    o = tl.sum(tl.view(v, (16, 16)), 1)
    tl.store(y + r * 16 + tl.arange(0, 16), o)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 16, device=x.device)
        k[(x.shape[0],)](x, y, 256)
        return y
