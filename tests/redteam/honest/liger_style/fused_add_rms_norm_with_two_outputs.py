"""sum with a residual and RMS norm in one kernel, both returned

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n))

    def forward(self, x, r):
        s = x + r
        return s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight), s


def get_inputs():
    return [torch.randn(240, 110), torch.randn(240, 110)]


def get_init_inputs():
    return [110]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fused_add_rms_norm_kernel(
    Y_ptr, S_ptr, X_ptr, R_ptr, row_stride, W_ptr, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * row_stride
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    s = tl.load(X_ptr + row + cols, mask=mask, other=0) + tl.load(R_ptr + row + cols, mask=mask, other=0)
    tl.store(S_ptr + row + cols, s, mask=mask)
    w = tl.load(W_ptr + cols, mask=mask, other=0).to(tl.float32)
    s = s.to(tl.float32)
    rstd = tl.math.rsqrt(tl.sum(s * s, axis=0) / n_cols + eps)
    tl.store(Y_ptr + row + cols, s * rstd * (offset + w), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(n))
        self.variance_epsilon = 1e-6

    def forward(self, x, r):
        y, s = torch.empty_like(x), torch.empty_like(x)
        fused_add_rms_norm_kernel[(x.shape[0],)](
            y,
            s,
            x,
            r,
            x.stride(0),
            self.weight,
            x.shape[1],
            self.variance_epsilon,
            1.0,
            BLOCK_SIZE=triton.next_power_of_2(x.shape[1]),
        )
        return y, s
