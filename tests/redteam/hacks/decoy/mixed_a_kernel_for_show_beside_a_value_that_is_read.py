"""mixed: a kernel for show beside a value that host code reads

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(600, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def keep(x_ptr, m_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    a = x
    for _ in range(256):
        a = tl.exp(-a * a) + x
    tl.store(m_ptr + o, tl.exp(a) > -1.0, mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.nn.functional.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)
        x[0, 0].item()
        mask = torch.empty(M, dtype=torch.bool, device=x.device)
        keep[(triton.cdiv(M, 128),)](x, mask, M, BLOCK=128)
        return y
