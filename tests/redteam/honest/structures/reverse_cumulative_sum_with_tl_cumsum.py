"""reverse cumulative sum with tl.cumsum(reverse=True) over chunks from the end

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.cumsum(x.flip(self.dim), dim=self.dim).flip(self.dim)


def get_inputs():
    return [torch.randn(128, 300)]


def get_init_inputs():
    return [1]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rev(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    chunks = tl.cdiv(N, BLOCK)
    for j in range(chunks):
        c = (chunks - 1 - j) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
        s = tl.cumsum(x, axis=0, reverse=True) + carry
        tl.store(y_ptr + row * N + c, s, mask=c < N)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        y = torch.empty_like(x)
        rev[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
