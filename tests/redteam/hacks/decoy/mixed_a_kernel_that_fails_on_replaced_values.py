"""mixed: a kernel for show that reads out of bounds once an earlier one's values are replaced

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)


def get_inputs():
    return [torch.rand(64, 100)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def flags(o):
    tl.store(o, 0)
    tl.store(o + 1, 1000000)


@triton.jit
def show(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + tl.load(o) + i, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(2, dtype=torch.int32, device=x.device)
        flags[(1,)](o)
        o[1].item()
        y = torch.empty_like(x)
        show[(triton.cdiv(x.numel(), 256),)](x, y, o, x.numel(), B=256)
        return torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)
