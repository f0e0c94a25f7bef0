"""two results in one block whose order is left open

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cat([torch.relu(x), torch.exp(x)], 1)


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
    v = tl.load(x + r * N + c)
    o = tl.cat(tl.maximum(v, 0.0), tl.exp(v), can_reorder=True)
    tl.store(y + r * 2 * N + tl.arange(0, 2 * N), o)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 512, device=x.device)
        k[(x.shape[0],)](x, y, 256)
        return y
