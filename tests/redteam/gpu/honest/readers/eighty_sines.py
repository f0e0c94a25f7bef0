"""eighty sines of 32 rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(80):
            y = torch.sin(y + x)
        return y


def get_inputs():
    return [torch.rand(32, 4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def steps(x_ptr, out_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = x
    for _ in range(ROUNDS):
        y = tl.sin(y + x)
    tl.store(out_ptr + i, y, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        steps[triton.cdiv(x.numel(), 4096),](x, out, x.numel(), ROUNDS=80, BLOCK=4096, num_warps=8)
        return out
