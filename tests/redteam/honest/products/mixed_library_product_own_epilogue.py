"""mixed policy: the library's product, an own epilogue

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(4096, 16)]


def get_init_inputs():
    return [16, 48]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def epilogue(x_ptr, b_ptr, n, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) + tl.load(b_ptr + i % N, mask=i < n)
    tl.store(x_ptr + i, tl.maximum(x, 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        out = torch.matmul(x, self.linear.weight.t())
        epilogue[(triton.cdiv(out.numel(), 1024),)](out, self.linear.bias, out.numel(), out.shape[1], BLOCK=1024)
        return out
