"""RMS norm with a weight that is one more than stored, all in float32, half precision in and out

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter((torch.rand(n) - 0.5).half())

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (h * (1.0 + self.weight.float())).to(x.dtype)


def get_inputs():
    return [torch.randn(220, 136).half()]


def get_init_inputs():
    return [136]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gemma_rms_layernorm_forward(Y, X, W, row_stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X + row_idx * row_stride + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets, mask=mask, other=0).to(tl.float32)
    row_var = tl.sum(X_row * X_row, axis=0) / n_cols
    inv_var = 1.0 / tl.sqrt(row_var + eps.to(tl.float32))
    output = X_row * inv_var * (W_row + 1.0)
    tl.store(Y + row_idx * row_stride + col_offsets, output, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter((torch.rand(n) - 0.5).half())

    def forward(self, x):
        y = torch.empty_like(x)
        gemma_rms_layernorm_forward[(x.shape[0],)](
            y, x, self.weight, x.stride(0), x.shape[1], 1e-6, BLOCK_SIZE=triton.next_power_of_2(x.shape[1])
        )
        return y
