"""masked cumulative sum by associative_scan, bool loaded and cast

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=self.dim)


def get_inputs():
    return [torch.randn(128, 200), torch.randint(0, 2, (128, 200)).bool()]


def get_init_inputs():
    return [1]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x_ptr, m_ptr, y_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    keep = tl.load(m_ptr + r * N + c, mask=c < N, other=0)
    x = tl.where(keep != 0, x, 0.0)
    tl.store(y_ptr + r * N + c, tl.associative_scan(x, 0, add), mask=c < N)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x, mask):
        y = torch.empty_like(x)
        scan[(x.size(0),)](x, mask, y, x.size(1), BLOCK=triton.next_power_of_2(x.size(1)))
        return y
