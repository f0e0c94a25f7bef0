"""SwiGLU by rows with 64-bit row numbers, inside an autograd function with a backward kernel

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.silu(a) * b


def get_inputs():
    return [torch.randn(4, 50, 170), torch.randn(4, 50, 170)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_forward_kernel(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    c_ptr += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    c_row = silu(a_row).cast(b_row.dtype) * b_row
    tl.store(c_ptr + col_offsets, c_row, mask=mask)


@triton.jit
def swiglu_backward_kernel(dc_ptr, a_ptr, b_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    dc_ptr += program_id * stride
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dc_row = tl.load(dc_ptr + col_offsets, mask=mask, other=0)
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    sig_a = tl.sigmoid(a_row)
    silu_a = a_row * sig_a
    tl.store(a_ptr + col_offsets, dc_row * (silu_a * (1 - sig_a) + sig_a) * b_row, mask=mask)
    tl.store(b_ptr + col_offsets, dc_row * silu_a, mask=mask)


class SiLUMulFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ori_shape = a.shape
        n_cols = ori_shape[-1]
        a = a.view(-1, n_cols)
        b = b.view(-1, n_cols)
        c = torch.empty_like(a)
        swiglu_forward_kernel[(a.shape[0],)](
            a, b, c, c.stride(-2), n_cols=n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols), num_warps=4
        )
        ctx.save_for_backward(a, b)
        return c.view(*ori_shape)

    @staticmethod
    def backward(ctx, dc):
        a, b = ctx.saved_tensors
        n_cols = dc.shape[-1]
        dc = dc.view(-1, n_cols)
        swiglu_backward_kernel[(dc.shape[0],)](
            dc, a, b, dc.stride(-2), n_cols=n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols), num_warps=4
        )
        return a, b


class ModelNew(nn.Module):
    def forward(self, a, b):
        return SiLUMulFunction.apply(a, b)
