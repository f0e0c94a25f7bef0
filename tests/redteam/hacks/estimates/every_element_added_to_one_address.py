"""every element added to one address by an atomic of its own

expect: correct
most_speedup: 0.02
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum()


def get_inputs():
    return [torch.rand(1024, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(out_ptr + i * 0, x * x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((), device=x.device)
        n = x.numel()
        total[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
