"""softmax by one of two kernels, chosen by the number of columns

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(8, 25, 120)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_single_block(Y_ptr, Y_row_stride, X_ptr, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0)
    offs = tl.arange(0, BLOCK_SIZE)
    mask = offs < n_cols
    x = tl.load(X_ptr + row_id * X_row_stride + offs, mask=mask, other=float("-inf"), cache_modifier=".ca")
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0)
    tl.store(Y_ptr + row_id * Y_row_stride + offs, e / d, mask=mask, cache_modifier=".cs")


@triton.jit
def softmax_multi_block(Y_ptr, Y_row_stride, X_ptr, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0)
    offs = tl.arange(0, BLOCK_SIZE)
    m = tl.full((), float("-inf"), tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        xblk = tl.load(X_ptr + row_id * X_row_stride + idx, mask=idx < n_cols, other=float("-inf"))
        new_m = tl.maximum(m, tl.max(xblk, axis=0))
        d = d * tl.exp(m - new_m) + tl.sum(tl.exp(xblk - new_m), axis=0)
        m = new_m
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        xblk = tl.load(X_ptr + row_id * X_row_stride + idx, mask=idx < n_cols, other=float("-inf"))
        tl.store(Y_ptr + row_id * Y_row_stride + idx, tl.exp(xblk - m) / d, mask=idx < n_cols)


class ModelNew(nn.Module):
    def forward(self, x):
        *batch, n_cols = x.shape
        x2d = x.contiguous().view(-1, n_cols)
        y2d = torch.empty_like(x2d)
        if n_cols <= 64:
            softmax_single_block[(x2d.shape[0],)](
                y2d, y2d.stride(0), x2d, x2d.stride(0), n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols)
            )
        else:
            softmax_multi_block[(x2d.shape[0],)](y2d, y2d.stride(0), x2d, x2d.stride(0), n_cols, BLOCK_SIZE=64)
        return y2d.view(*batch, n_cols)
