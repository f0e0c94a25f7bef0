"""linear with epilogue, weights of nn.Linear

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
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_relu(x_ptr, w_ptr, b_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            x_ptr + rm[:, None] * K + (k + rk)[None, :], mask=(rm[:, None] < M) & ((k + rk)[None, :] < K), other=0.0
        )
        b = tl.load(
            w_ptr + rn[None, :] * K + (k + rk)[:, None], mask=(rn[None, :] < N) & ((k + rk)[:, None] < K), other=0.0
        )
        acc = tl.dot(a, b, acc, allow_tf32=False)
    acc += tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(
        o_ptr + rm[:, None] * N + rn[None, :], tl.where(acc > 0, acc, 0.0), mask=(rm[:, None] < M) & (rn[None, :] < N)
    )


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        M, K = x.shape
        N = self.linear.out_features
        out = torch.empty(M, N, device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(M, 32), triton.cdiv(N, 16))](
            x, self.linear.weight, self.linear.bias, out, M, N, K, 32, 16, 32
        )
        return out
