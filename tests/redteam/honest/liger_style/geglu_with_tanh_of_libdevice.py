"""GEGLU by the tanh approximation with libdevice's tanh

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.gelu(a, approximate="tanh") * b


def get_inputs():
    return [torch.randn(200, 150), torch.randn(200, 150)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def geglu_tanh_forward_kernel(a, b, c, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a += program_id * stride
    b += program_id * stride
    c += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + col_offsets, mask=mask, other=0)
    sqrt_2_over_pi = 0.7978845608028654
    a_cubed = a_row * a_row * a_row
    tanh_arg = sqrt_2_over_pi * (a_row + 0.044715 * a_cubed)
    geglu_a = 0.5 * a_row * (1 + libdevice.tanh(tanh_arg))
    tl.store(c + col_offsets, geglu_a.cast(b_row.dtype) * b_row, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        n_rows, n_cols = a.shape
        c = torch.empty_like(a)
        geglu_tanh_forward_kernel[(n_rows,)](
            a, b, c, c.stride(-2), n_cols=n_cols, BLOCK_SIZE=triton.next_power_of_2(n_cols)
        )
        return c
