"""a table of what the kernel needs is made by the host in each call

expect: correct
most_speedup: 0.9
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.rand(4096, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, table_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    factor = tl.load(table_ptr + places % 128, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * factor, mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        table = torch.tensor([math.sqrt(4.0) for _ in range(128)], device=x.device)
        out = torch.empty_like(x)
        n = x.numel()
        double_kernel[(triton.cdiv(n, 1024),)](x, table, out, n, BLOCK=1024)
        return out
