"""repeat for repeat_interleave

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.repeat_interleave(x, 3, dim=1) * 2.0


def get_inputs():
    return [torch.randn(200, 50)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def repeat_kernel(X, O, N, R, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = i // (N * R)
    col = i % N
    x = tl.load(X + row * N + col, mask=i < n, other=0.0)
    tl.store(O + i, x * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, N * 3), dtype=x.dtype, device=x.device)
        n = out.numel()
        repeat_kernel[(triton.cdiv(n, 1024),)](x, out, N, 3, n, BLOCK=1024)
        return out
