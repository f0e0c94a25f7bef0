"""input padded by F.pad before a depthwise convolution

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
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def taps(x_ptr, w_ptr, b_ptr, y_ptr, C, L, LP, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    c = plane % C
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for t in range(3):
        acc += tl.load(x_ptr + plane * LP + i + t, mask=i < L, other=0.0) * tl.load(w_ptr + c * 3 + t)
    tl.store(y_ptr + plane * L + i, acc + tl.load(b_ptr + c), mask=i < L)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1, groups=8)

    def forward(self, x):
        B, C, L = x.shape
        padded = F.pad(x, (1, 1))
        y = torch.empty((B, C, L), device=x.device, dtype=x.dtype)
        taps[(B * C,)](padded, self.conv.weight, self.conv.bias, y, C, L, L + 2, BLOCK=64)
        return y
