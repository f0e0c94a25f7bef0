"""a copy of a layer in another type beside it, which the kernel reads

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)

    def forward(self, x):
        return self.fc(x).relu()


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return [64, 32]


# --- candidate ---
import copy

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear(x, w, b, y, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    k = tl.arange(0, K)
    xv = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
    wv = tl.load(w + n[None, :] * K + k[:, None]).to(tl.float32)
    acc = tl.dot(xv, wv, input_precision="ieee") + tl.load(b + n).to(tl.float32)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], tl.maximum(acc, 0.0), mask=(m < M)[:, None])


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n)
        self.wide = copy.deepcopy(self.fc).double()

    def forward(self, x):
        y = torch.empty(x.shape[0], self.fc.out_features, device=x.device)
        linear[(triton.cdiv(x.shape[0], 16),)](
            x, self.wide.weight, self.wide.bias, y, x.shape[0], N=self.fc.out_features, K=x.shape[1], BM=16
        )
        return y
