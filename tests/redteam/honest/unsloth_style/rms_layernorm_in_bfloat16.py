"""RMS norm of bfloat16 rows, computed in float32 and rounded before the weight

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n).to(torch.bfloat16))

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return h.to(x.dtype) * self.weight


def get_inputs():
    return [torch.randn(200, 100).to(torch.bfloat16)]


def get_init_inputs():
    return [100]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_layernorm_forward(
    Y, Y_row_stride, X, X_row_stride, W, r, n_cols: tl.constexpr, eps: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    Y += row_idx * Y_row_stride
    X += row_idx * X_row_stride
    X_row = tl.load(X + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets, mask=mask, other=0)
    row_var = tl.sum(X_row * X_row, axis=0) / n_cols
    inv_var = tl.math.rsqrt(row_var + eps)
    tl.store(r + row_idx, inv_var)
    normed = (X_row * inv_var).to(W_row.dtype)
    tl.store(Y + col_offsets, normed * W_row, mask=mask)


class Fast_RMS_Layernorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, eps):
        shape = X.shape
        X = X.reshape(-1, shape[-1])
        n_rows, n_cols = X.shape
        Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
        r = torch.empty(n_rows, dtype=torch.float32, device=X.device)
        rms_layernorm_forward[(n_rows,)](
            Y, Y.stride(0), X, X.stride(0), W, r, n_cols, eps, BLOCK_SIZE=triton.next_power_of_2(n_cols), num_warps=4
        )
        return Y.view(*shape)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n).to(torch.bfloat16))

    @torch.no_grad()
    def forward(self, x):
        return Fast_RMS_Layernorm.apply(x, self.weight, 1e-5)
