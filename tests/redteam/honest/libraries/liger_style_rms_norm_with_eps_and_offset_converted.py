"""liger style rms norm with eps and offset converted

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * 1.5


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms(x_ptr, o_ptr, x_stride, n_cols, eps, offset, casting_mode: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < n_cols
    x = tl.load(x_ptr + row * x_stride + c, mask=mask, other=0)
    dtype = x.dtype
    if casting_mode == 0:
        x = x.to(tl.float32)
    if casting_mode == 1:
        eps = eps.to(dtype)
        offset = offset.to(dtype)
    mean_square = tl.sum(x * x, axis=0) / n_cols
    rstd = tl.rsqrt(mean_square + eps)
    tl.store(o_ptr + row * x_stride + c, x * rstd * (offset + 1.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        rms[(x.shape[0],)](x, out, x.stride(0), x.shape[1], 1e-6, 0.5, casting_mode=1, BLOCK=64)
        return out
