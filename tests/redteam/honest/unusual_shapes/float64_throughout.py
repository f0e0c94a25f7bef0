"""float64 in and out with a float64 accumulator

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(150, 77, dtype=torch.float64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(X, O, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float64)
    for s in range(0, N, BLOCK):
        i = s + tl.arange(0, BLOCK)
        acc += tl.load(X + row * N + i, mask=i < N, other=0.0)
    tl.store(O + row, tl.sum(acc))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        sum_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
        return out
