"""histogram of small integers by tl.histogram and one atomic a bin and program

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x, minlength=16).to(torch.int32)


def get_inputs():
    return [torch.randint(0, 16, (9000,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(X, H, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0).to(tl.int32)
    h = tl.histogram(x, BINS)
    bins = tl.arange(0, BINS)
    outside = BLOCK - tl.sum((i < n).to(tl.int32))
    h = tl.where(bins == 0, h - outside, h)
    tl.atomic_add(H + bins, h)


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.zeros(16, dtype=torch.int32, device=x.device)
        n = x.numel()
        histogram_kernel[(triton.cdiv(n, 1024),)](x, h, n, BINS=16, BLOCK=1024)
        return h
