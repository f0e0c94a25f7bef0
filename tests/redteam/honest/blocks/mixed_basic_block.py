"""mixed: basic block, library convolutions, batch norm + residual + relu fused

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """ResNet basic block, evaluation"""

    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.eval()

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + x)


def get_inputs():
    return [torch.randn(72, 8, 12, 12)]


def get_init_inputs():
    return [8]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_act(x, r, y, mean, var, w, b, n, C, HW, eps, RES: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    c = (i // HW) % C
    s = tl.load(w + c, mask=m) * tl.rsqrt(tl.load(var + c, mask=m, other=1.0) + eps)
    v = (tl.load(x + i, mask=m) - tl.load(mean + c, mask=m)) * s + tl.load(b + c, mask=m)
    if RES:
        v += tl.load(r + i, mask=m)
    tl.store(y + i, tl.maximum(v, 0.0), mask=m)


def fused(x, bn, res=None):
    y = torch.empty_like(x)
    N, C, H, W = x.shape
    bn_act[(triton.cdiv(x.numel(), 1024),)](
        x,
        res if res is not None else x,
        y,
        bn.running_mean,
        bn.running_var,
        bn.weight,
        bn.bias,
        x.numel(),
        C,
        H * W,
        bn.eps,
        RES=res is not None,
        BLOCK=1024,
    )
    return y


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)
        self.eval()

    def forward(self, x):
        out = fused(self.conv1(x), self.bn1)
        return fused(self.conv2(out), self.bn2, x)
