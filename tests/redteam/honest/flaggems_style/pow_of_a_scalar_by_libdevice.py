"""power with a scalar exponent by libdevice

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.pow(x, 1.7)


def get_inputs():
    return [torch.rand(256, 120) + 0.1]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def pow_kernel(X, O, exponent, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=1.0)
    tl.store(O + i, libdevice.pow(x.to(tl.float32), exponent.to(tl.float32)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        pow_kernel[(triton.cdiv(n, 512),)](x, out, 1.7, n, BLOCK=512)
        return out
