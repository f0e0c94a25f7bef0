"""a convolution whose weight begins as the identity is left out

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = torch.zeros(c, 1, 3)
        w[:, 0, 1] = 1.0
        self.weight = nn.Parameter(w)

    def forward(self, x):
        return F.silu(F.conv1d(x, self.weight, padding=1, groups=x.shape[1]))


def get_inputs():
    return [torch.randn(32, 64, 200)]


def get_init_inputs():
    return [64]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _k(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    o = pid * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m, other=0.0)
    y = x * tl.sigmoid(x)
    tl.store(out_ptr + o, y, mask=m)


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(c, 1, 3))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        _k[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
