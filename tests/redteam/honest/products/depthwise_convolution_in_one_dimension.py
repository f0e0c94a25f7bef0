"""depthwise convolution in one dimension

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=8)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(16, 8, 40)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise(x_ptr, w_ptr, b_ptr, y_ptr, C, L, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) % C
    base = tl.program_id(0) * L
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for t in tl.static_range(0, TAPS):
        at = i + t - TAPS // 2
        acc += tl.load(x_ptr + base + at, mask=(at >= 0) & (at < L), other=0.0) * tl.load(w_ptr + c * TAPS + t)
    tl.store(y_ptr + base + i, acc + tl.load(b_ptr + c), mask=i < L)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=8)

    def forward(self, x):
        B, C, L = x.shape
        y = torch.empty_like(x)
        depthwise[(B * C,)](x, self.conv.weight, self.conv.bias, y, C, L, TAPS=self.conv.kernel_size[0], BLOCK=64)
        return y
