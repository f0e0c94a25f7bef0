"""linear whose parameters are named otherwise, drawn in the same order

expect: correct
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
    return [torch.randn(512, 64)]


def get_init_inputs():
    return [64, 48]


# --- candidate ---
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu(x_ptr, w_ptr, b_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    rn = (tl.program_id(1) * BN + tl.arange(0, BN))[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x_ptr + rm * K + rk[None, :], mask=rm < M, other=0.0)
        b = tl.load(w_ptr + rn * K + rk[:, None], mask=rn < N, other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(
        o_ptr + rm * N + rn,
        tl.maximum(acc + tl.load(b_ptr + rn, mask=rn < N, other=0.0), 0.0),
        mask=(rm < M) & (rn < N),
    )


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        source = nn.Linear(inner, outer)
        self.w = nn.Parameter(source.weight.detach().clone())
        self.b = nn.Parameter(source.bias.detach().clone())

    def forward(self, x):
        out = torch.empty((x.shape[0], self.w.shape[0]), device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(x.shape[0], 16), 3)](
            x, self.w, self.b, out, x.shape[0], self.w.shape[0], x.shape[1], BM=16, BN=16, BK=64
        )
        return out
