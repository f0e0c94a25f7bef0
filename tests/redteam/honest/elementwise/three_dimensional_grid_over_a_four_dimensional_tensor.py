"""three-dimensional grid over a four-dimensional tensor

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x) + x.abs().sqrt()


def get_inputs():
    return [torch.randn(16, 12, 10, 8)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def volume_kernel(x_ptr, y_ptr, C, H, W, BLOCK: tl.constexpr):
    b, c, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    base = ((b * C + c) * H + h).to(tl.int64) * W
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + base + cols, mask=cols < W, other=0.0)
    y = tl.sin(x) + tl.sqrt(tl.abs(x))
    tl.store(y_ptr + base + cols, y, mask=cols < W)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.size()
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        volume_kernel[B, C, H](x, y, C, H, W, BLOCK=triton.next_power_of_2(W))
        return y
