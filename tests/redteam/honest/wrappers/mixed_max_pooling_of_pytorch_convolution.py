"""mixed: max-pooling of PyTorch's convolution

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return F.max_pool2d(self.conv(x), 2)


def get_inputs():
    return [torch.randn(4, 3, 18, 18)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool(x, y, W, WO, HW, HWO, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    p = x + i // HWO * HW + i % HWO // WO * 2 * W + i % WO * 2
    top = tl.maximum(tl.load(p, mask=m), tl.load(p + 1, mask=m))
    tl.store(y + i, tl.maximum(top, tl.maximum(tl.load(p + W, mask=m), tl.load(p + W + 1, mask=m))), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        x = self.conv(x).contiguous()
        n, c, h, w = x.shape
        y = torch.empty(n, c, h // 2, w // 2, device=x.device)
        pool[(triton.cdiv(y.numel(), 128),)](x, y, w, w // 2, h * w, (h // 2) * (w // 2), y.numel(), B=128)
        return y
