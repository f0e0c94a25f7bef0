"""pointer reinterpreted as another type in the kernel

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.copysign(torch.ones_like(x), x)


def get_inputs():
    return [torch.randn(50, 70)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sign_bits(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    xi = x_ptr.to(tl.pointer_type(tl.int32))
    yi = tl.cast(y_ptr, tl.pointer_type(tl.int32), bitcast=True)
    b = tl.load(xi + i, mask=i < n)
    tl.store(yi + i, (b & -2147483648) | 0x3F800000, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        sign_bits[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
