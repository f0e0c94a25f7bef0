"""layer norm that keeps mean and reciprocal deviation besides

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, eps=1e-6)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(300, 144)]


def get_init_inputs():
    return [144]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, B_ptr, Mean_ptr, RSTD_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    B_row = tl.load(B_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    X_row = tl.load(X_ptr + row_idx * X_row_stride + col_offsets, mask=mask, other=0.0)
    X_f32 = X_row.to(tl.float32)
    mean = tl.sum(X_f32, axis=0) / n_cols
    X_centered = X_f32 - mean
    X_centered_masked = tl.where(mask, X_centered, 0.0)
    var = tl.sum(X_centered_masked * X_centered_masked, axis=0) / n_cols
    rstd = tl.math.rsqrt(var + eps)
    tl.store(Mean_ptr + row_idx, mean.to(X_row.dtype))
    tl.store(RSTD_ptr + row_idx, rstd.to(X_row.dtype))
    Y = X_centered * rstd * W_row + B_row
    tl.store(Y_ptr + row_idx * Y_row_stride + col_offsets, Y.to(X_row.dtype), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n, eps=1e-6)

    def forward(self, x):
        n_rows, n_cols = x.shape
        y = torch.empty_like(x)
        mean = torch.empty(n_rows, dtype=x.dtype, device=x.device)
        rstd = torch.empty(n_rows, dtype=x.dtype, device=x.device)
        layer_norm_forward_kernel[(n_rows,)](
            y,
            y.stride(0),
            x,
            x.stride(0),
            self.norm.weight,
            self.norm.bias,
            mean,
            rstd,
            n_cols,
            self.norm.eps,
            BLOCK_SIZE=triton.next_power_of_2(n_cols),
        )
        return y
