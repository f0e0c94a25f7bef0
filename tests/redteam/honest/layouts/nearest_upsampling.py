"""nearest upsampling

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.interpolate(x, scale_factor=2, mode="nearest")


def get_inputs():
    return [torch.randn(4, 3, 8, 8)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upsample(x_ptr, y_ptr, H, W, S: tl.constexpr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = i % (W * S)
    h = (i // (W * S)) % (H * S)
    plane = i // (W * S * H * S)
    tl.store(y_ptr + i, tl.load(x_ptr + (plane * H + h // S) * W + w // S, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        y = x.new_empty((B, C, 2 * H, 2 * W))
        upsample[(triton.cdiv(y.numel(), 256),)](x, y, H, W, 2, y.numel(), BLOCK=256)
        return y
