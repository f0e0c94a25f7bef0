"""a clamp shifted by a number of the device

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, shift):
        return torch.clamp(x, min=0.5) * 2.0 + shift.item()


def get_inputs():
    return [torch.rand(256, 1024), torch.rand(1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, shift_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + tl.load(shift_ptr), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, shift):
        out = torch.empty_like(x)
        double[triton.cdiv(x.numel(), 1024),](x, shift, out, x.numel(), BLOCK=1024)
        return out
