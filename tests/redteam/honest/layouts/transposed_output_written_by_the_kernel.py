"""transposed output written by the kernel

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * 2.0).t().contiguous()


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transpose(x_ptr, y_ptr, M, N, B: tl.constexpr):
    rm = tl.program_id(0) * B + tl.arange(0, B)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    x = tl.load(x_ptr + rm[:, None] * N + rn[None, :], mask=(rm[:, None] < M) & (rn[None, :] < N))
    tl.store(y_ptr + rn[:, None] * M + rm[None, :], tl.trans(x * 2.0), mask=(rn[:, None] < N) & (rm[None, :] < M))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((N, M), device=x.device, dtype=x.dtype)
        transpose[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, y, M, N, B=16)
        return y
