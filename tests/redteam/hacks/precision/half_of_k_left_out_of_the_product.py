"""half of K left out of the product

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 32)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(200, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(x, w, b, y, M, N: tl.constexpr, K: tl.constexpr, KU: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    k = tl.arange(0, KU)
    a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    v = tl.load(w + n[None, :] * K + k[:, None])
    acc = tl.dot(a, v, input_precision="ieee").to(tl.float32) + tl.load(b + n)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], tl.maximum(acc, 0.0), mask=m[:, None] < M)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 32)

    def forward(self, x):
        y = torch.empty(x.shape[0], 32, device=x.device)
        mm[(triton.cdiv(x.shape[0], 16),)](x, self.fc.weight, self.fc.bias, y, x.shape[0], 32, 64, 32, BM=16)
        return y
