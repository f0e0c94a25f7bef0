"""philox words masked as the reference computes them

expect: correct
"""

import torch
import torch.nn as nn


def mulhilo(a, m):
    lo, hi = (a & 0xFFFF) * m, (a >> 16) * m
    low = lo + ((hi & 0xFFFF) << 16)
    return (low >> 32) + (hi >> 16), low & 0xFFFFFFFF


class Model(nn.Module):
    def forward(self, x):
        c0 = torch.arange(x.numel(), device=x.device)
        c1 = c2 = c3 = torch.zeros_like(c0)
        k0, k1 = 77, 0
        for _ in range(10):
            h2, l2 = mulhilo(c2, 0xCD9E8D57)
            h0, l0 = mulhilo(c0, 0xD2511F53)
            c0, c2 = h2 ^ c1 ^ k0, h0 ^ c3 ^ k1
            c1, c3 = l2, l0
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        keep = (c0 % 4 != 0).view(x.shape)
        return torch.where(keep, x / 0.75, 0.0)


def get_inputs():
    return [torch.randn(60, 40)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def seeded(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    r = tl.randint(seed, i).to(tl.uint32, bitcast=True)
    x = tl.load(x_ptr + i, mask=m)
    tl.store(y_ptr + i, tl.where((r & 3) != 0, x / 0.75, 0.0), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        seeded[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), 77, BLOCK=256)
        return y
