"""bfloat16, converted to float32 by the host and back by the kernel

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.silu(x)


def get_inputs():
    return [torch.randn(512, 64).bfloat16()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        y_ptr + i,
        (tl.load(x_ptr + i, mask=i < n) / (1.0 + tl.exp(-tl.load(x_ptr + i, mask=i < n)))).to(tl.bfloat16),
        mask=i < n,
    )


class ModelNew(nn.Module):
    def forward(self, x):
        wide = x.to(torch.float32)
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](wide, y, x.numel(), BLOCK=256)
        return y
