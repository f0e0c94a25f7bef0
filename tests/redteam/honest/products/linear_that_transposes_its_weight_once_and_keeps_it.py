"""linear that transposes its weight once and keeps it

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
def linear_relu(x_ptr, wt_ptr, b_ptr, o_ptr, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, K)
    a = tl.load(x_ptr + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
    b = tl.load(wt_ptr + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
    acc = tl.dot(a, b, input_precision="tf32x3") + tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]
    tl.store(o_ptr + rm[:, None] * N + rn[None, :], tl.maximum(acc, 0.0), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self._wt = None

    def forward(self, x):
        if self._wt is None:
            self._wt = self.linear.weight.t().contiguous()
        out = torch.empty((x.shape[0], self._wt.shape[1]), device=x.device, dtype=x.dtype)
        linear_relu[(triton.cdiv(x.shape[0], 16), triton.cdiv(out.shape[1], 16))](
            x, self._wt, self.linear.bias, out, *out.shape, K=x.shape[1], BM=16, BN=16
        )
        return out
