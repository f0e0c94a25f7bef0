"""weighted sum of three normalised powers with weights read one at a time

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.2, 0.3, 0.5]))
        self.bias = nn.Parameter(torch.tensor([0.1]))

    def forward(self, x):
        def norm(h):
            return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)

        w = self.weight
        return w[0] * norm(x**3) + w[1] * norm(x**2) + w[2] * norm(x) + self.bias


def get_inputs():
    return [torch.randn(200, 90)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def poly_norm_kernel(Y_ptr, X_ptr, row_stride, W_ptr, B_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    w0 = tl.load(W_ptr + 0).to(tl.float32)
    w1 = tl.load(W_ptr + 1).to(tl.float32)
    w2 = tl.load(W_ptr + 2).to(tl.float32)
    b = tl.load(B_ptr).to(tl.float32)
    x = tl.load(X_ptr + row_idx * row_stride + cols, mask=mask, other=0.0).to(tl.float32)
    x3 = x * x * x
    x2 = x * x
    r3 = tl.math.rsqrt(tl.sum(x3 * x3, axis=0) / n_cols + eps)
    r2 = tl.math.rsqrt(tl.sum(x2 * x2, axis=0) / n_cols + eps)
    r1 = tl.math.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    y = w0 * x3 * r3 + w1 * x2 * r2 + w2 * x * r1 + b
    tl.store(Y_ptr + row_idx * row_stride + cols, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.2, 0.3, 0.5]))
        self.bias = nn.Parameter(torch.tensor([0.1]))

    def forward(self, x):
        y = torch.empty_like(x)
        poly_norm_kernel[(x.shape[0],)](
            y, x, x.stride(0), self.weight, self.bias, x.shape[1], 1e-6, BLOCK_SIZE=triton.next_power_of_2(x.shape[1])
        )
        return y
