"""by a checksum (the largest value) that a kernel computes

expect: refused
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
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + r * N + c, g / (tl.sum(x * x, axis=0) / N + 1.0), mask=c < N)


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def mx(x, s, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = float("-inf")
    for k in range(0, n, BLOCK):
        m = tl.maximum(m, tl.max(tl.load(x + k + i, mask=k + i < n, other=float("-inf"))))
    tl.store(s, m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = {}

    def forward(self, x):
        M, N = x.shape
        s = torch.zeros(1, device=x.device)
        mx[(1,)](x, s, M * N, BLOCK=8192)
        key = (s.item(), M)
        out = torch.empty_like(x)
        if key in self.k:
            copy[(triton.cdiv(M * N, 1024),)](self.k[key], out, M * N, BLOCK=1024)
        else:
            kernel[(M,)](x, out, M, N, BLOCK=128)
            self.k[key] = out.clone()
        return out
