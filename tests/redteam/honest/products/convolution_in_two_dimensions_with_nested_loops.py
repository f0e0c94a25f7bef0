"""convolution in two dimensions with nested loops over channels and taps

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(4, 3, 12, 12)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv2d(x_ptr, w_ptr, b_ptr, y_ptr, H, W, CI: tl.constexpr, CO, R: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    co = tl.program_id(1)
    i = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    row, col = i // W, i % W
    acc = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(b_ptr + co)
    for ci in range(CI):
        for r in range(R):
            for s in range(R):
                h, w = row + r - 1, col + s - 1
                inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + ((b * CI + ci) * H + h) * W + w, mask=inside, other=0.0)
                acc += x * tl.load(w_ptr + ((co * CI + ci) * R + r) * R + s)
    tl.store(y_ptr + (b * CO + co) * H * W + i, tl.maximum(acc, 0.0), mask=i < H * W)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, kernel_size=3, padding=1)

    def forward(self, x):
        B, CI, H, W = x.shape
        CO = self.conv.out_channels
        y = torch.empty((B, CO, H, W), device=x.device, dtype=x.dtype)
        conv2d[(B, CO, triton.cdiv(H * W, 128))](x, self.conv.weight, self.conv.bias, y, H, W, CI, CO, 3, BLOCK=128)
        return y
