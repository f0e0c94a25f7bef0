"""volatile loads of many scalars, which wait for nothing

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(-1)


def get_inputs():
    return [torch.randn(1600, 8)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, y_ptr, C):
    p = tl.program_id(0)
    total = 0.0
    for c in range(C):
        total += tl.load(x_ptr + p * C + c, volatile=True)
    tl.store(y_ptr + p, total)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        sums[(x.shape[0],)](x, y, x.shape[1])
        return y
