"""an upper triangle

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.triu(x)


def get_inputs():
    return [torch.rand(4096, 4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upper(x_ptr, out_ptr, n, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    inside = (rows < n) & (cols < n)
    v = tl.load(x_ptr + rows * n + cols, mask=inside & (cols >= rows), other=0.0)
    tl.store(out_ptr + rows * n + cols, v, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.shape[0]
        out = torch.empty_like(x)
        upper[triton.cdiv(n, 16), triton.cdiv(n, 256)](x, out, n, BM=16, BN=256, num_warps=4)
        return out
