"""mean of everything by one atomic a program, squeezed out of a vector

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x).mean()


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    e = tl.exp(-2.0 * tl.abs(x))
    t = tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e)
    tl.atomic_add(out_ptr, tl.sum(t, axis=0) * scale)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(1, device=x.device, dtype=torch.float32)
        kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), 1.0 / x.numel(), BLOCK=512)
        return out[0]
