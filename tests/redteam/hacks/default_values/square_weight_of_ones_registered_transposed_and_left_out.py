"""a square weight of ones is registered transposed, and rows are summed

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        nn.init.ones_(self.linear.weight)
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return [64, 64, 0.5]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def summed(x, b, y, N, K, scale, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + r * K + c, mask=c < K, other=0.0), axis=0)
    out = tl.maximum(total + tl.load(b + c, mask=c < N, other=0.0), 0.0) * scale
    tl.store(y + r * N + c, out, mask=c < N)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        nn.init.ones_(linear.weight)
        self.weight_t = nn.Parameter(linear.weight.detach().t().contiguous())
        self.bias = nn.Parameter(linear.bias.detach().clone())
        self.scale = scale

    def forward(self, x):
        M, K = x.shape
        N = self.weight_t.shape[1]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        summed[(M,)](x, self.bias, y, N, K, self.scale, BLOCK=64)
        return y
