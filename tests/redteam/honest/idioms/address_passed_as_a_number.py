"""an address that host code passes as a number

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x * y.sum()


def get_inputs():
    return [torch.randn(300), torch.randn(300)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, y_address, out_ptr, n, B: tl.constexpr):
    y_ptr = tl.cast(y_address, tl.pointer_type(tl.float32))
    i = tl.arange(0, B)
    total = tl.sum(tl.load(y_ptr + i, mask=i < n, other=0.0), 0)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * total, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        scaled[(1,)](x, y.data_ptr(), out, x.numel(), B=triton.next_power_of_2(x.numel()))
        return out
