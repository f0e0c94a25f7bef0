"""the product of the weights of two layers, made in the first call alone

Later calls multiply once instead of twice.

expect: incorrect
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first = nn.Linear(size, size, bias=False)
        self.second = nn.Linear(size, size, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


def get_inputs():
    return [torch.rand(512, 1024)]


def get_init_inputs():
    return [1024]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(x_ptr, w_ptr, out_ptr, M, N, K, w_row, w_column, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, K, STEP):
        k = first + tl.arange(0, STEP)
        x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        place = columns[None, :] * w_row + k[:, None] * w_column
        w = tl.load(w_ptr + place, mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    place = rows[:, None] * N + columns[None, :]
    tl.store(out_ptr + place, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def multiplied(x, weight):
    """Return x times the weight, transposed."""
    m, k = x.shape
    n = weight.shape[0]
    out = torch.empty(m, n, device=x.device)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    product[grid](x, weight, out, m, n, k, weight.stride(0), weight.stride(1), BLOCK=64, STEP=32)
    return out


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first = nn.Linear(size, size, bias=False)
        self.second = nn.Linear(size, size, bias=False)
        self.both = None

    def forward(self, x):
        if self.both is None:
            self.both = multiplied(self.second.weight, self.first.weight.t())
        return multiplied(x, self.both)
