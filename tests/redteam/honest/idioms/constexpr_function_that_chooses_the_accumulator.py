"""constexpr function that chooses the accumulator

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.float().sum(-1).to(x.dtype)


def get_inputs():
    return [torch.randn(80, 100).half()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def accumulator_of(dtype):
    return tl.float32 if dtype in (tl.float16, tl.bfloat16) else dtype


@triton.constexpr_function
def padded(n):
    return 1 << (n - 1).bit_length()


@triton.jit
def row_sums(x_ptr, y_ptr, N: tl.constexpr):
    acc_type: tl.constexpr = accumulator_of(x_ptr.dtype.element_ty)
    r = tl.program_id(0)
    c = tl.arange(0, padded(N))
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0).to(acc_type)
    tl.store(y_ptr + r, tl.sum(x, axis=-1).to(y_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        row_sums[(x.shape[0],)](x, y, x.shape[1])
        return y
