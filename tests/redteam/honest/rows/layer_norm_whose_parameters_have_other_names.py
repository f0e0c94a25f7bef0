"""layer norm whose parameters have other names

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, M, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    mask = (r < M) & (c < N)
    x = tl.load(x_ptr + r * N + c, mask=mask, other=0.0)
    mean = tl.sum(x, 1, keep_dims=True) / N
    var = tl.sum(tl.where(c < N, (x - mean) * (x - mean), 0.0), 1, keep_dims=True) / N
    y = (x - mean) * tl.rsqrt(var + 1e-5)
    y = y * tl.load(w_ptr + c, mask=c < N, other=0.0) + tl.load(b_ptr + c, mask=c < N, other=0.0)
    tl.store(y_ptr + r * N + c, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(96))
        self.beta = nn.Parameter(torch.zeros(96))

    def forward(self, x):
        y = torch.empty_like(x)
        layer_norm[(triton.cdiv(x.shape[0], 4),)](x, y, self.gamma, self.beta, x.shape[0], 96, ROWS=4, BLOCK=128)
        return y
