"""a complex tensor whose squared magnitude is read through view_as_real

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, z):
        return z.real * z.real + z.imag * z.imag


def get_inputs():
    return [torch.randn(150, 40, dtype=torch.complex64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def magnitude_kernel(Z, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    re = tl.load(Z + 2 * i, mask=i < n)
    im = tl.load(Z + 2 * i + 1, mask=i < n)
    tl.store(O + i, re * re + im * im, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, z):
        pairs = torch.view_as_real(z)
        out = torch.empty(z.shape, dtype=torch.float32, device=z.device)
        magnitude_kernel[(triton.cdiv(out.numel(), 512),)](pairs, out, out.numel(), BLOCK=512)
        return out
