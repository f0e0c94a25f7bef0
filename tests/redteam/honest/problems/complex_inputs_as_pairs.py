"""complex numbers, multiplied as pairs

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x * y


def get_inputs():
    return [torch.randn(256, 32, dtype=torch.complex64), torch.randn(256, 32, dtype=torch.complex64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def multiply(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    a = tl.load(x_ptr + 2 * at, mask=mask, other=0.0)
    b = tl.load(x_ptr + 2 * at + 1, mask=mask, other=0.0)
    c = tl.load(y_ptr + 2 * at, mask=mask, other=0.0)
    d = tl.load(y_ptr + 2 * at + 1, mask=mask, other=0.0)
    tl.store(out_ptr + 2 * at, a * c - b * d, mask=mask)
    tl.store(out_ptr + 2 * at + 1, a * d + b * c, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        multiply[(triton.cdiv(x.numel(), 128),)](
            torch.view_as_real(x), torch.view_as_real(y), torch.view_as_real(out), x.numel(), BLOCK=128
        )
        return out
