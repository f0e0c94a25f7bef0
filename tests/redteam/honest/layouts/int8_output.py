"""int8 output

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 20).round().clamp(-128, 127).to(torch.int8)


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra.libdevice import rint


@triton.jit
def quantise(x_ptr, q_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = rint(tl.load(x_ptr + i, mask=i < n) * 20.0)
    tl.store(q_ptr + i, tl.minimum(tl.maximum(x, -128.0), 127.0).to(tl.int8), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        q = torch.empty(x.shape, device=x.device, dtype=torch.int8)
        quantise[(triton.cdiv(x.numel(), 512),)](x, q, x.numel(), BLOCK=512)
        return q
