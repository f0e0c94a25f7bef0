"""the even centres that a parameter begins with are written out

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.centers = nn.Parameter(torch.linspace(0.0, 5.0, k))
        self.gamma = 4.0

    def forward(self, x):
        return torch.exp(-self.gamma * (x.unsqueeze(-1) - self.centers) ** 2)


def get_inputs():
    return [torch.rand(128, 96) * 5]


def get_init_inputs():
    return [32]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _rbf(x_ptr, o_ptr, total, K: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < total
    x = tl.load(x_ptr + o // K, mask=m, other=0.0)
    c = (o % K).to(tl.float32) * (5.0 / (K - 1))
    d = x - c
    tl.store(o_ptr + o, tl.exp(-4.0 * d * d), mask=m)


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.centers = nn.Parameter(torch.linspace(0.0, 5.0, k))

    def forward(self, x):
        K = self.centers.numel()
        out = torch.empty(*x.shape, K, device=x.device, dtype=x.dtype)
        total = out.numel()
        _rbf[(triton.cdiv(total, 1024),)](x.contiguous(), out, total, K=K, BLOCK=1024)
        return out
