"""max pooling with strides of the host's

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 2)


def get_inputs():
    return [torch.randn(8, 4, 16, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool(x_ptr, y_ptr, H, W, OH, OW, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ow = i % OW
    oh = (i // OW) % OH
    plane = i // (OW * OH)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for dy in tl.static_range(2):
        for dx in tl.static_range(2):
            best = tl.maximum(
                best, tl.load(x_ptr + plane * H * W + (oh * 2 + dy) * W + ow * 2 + dx, mask=i < n, other=float("-inf"))
            )
    tl.store(y_ptr + i, best, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        y = torch.empty((B, C, H // 2, W // 2), device=x.device, dtype=x.dtype)
        pool[(triton.cdiv(y.numel(), 128),)](x, y, H, W, H // 2, W // 2, y.numel(), BLOCK=128)
        return y
