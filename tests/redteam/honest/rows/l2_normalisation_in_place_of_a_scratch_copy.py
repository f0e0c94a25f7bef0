"""L2 normalisation in place of a scratch copy

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


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
def square_sums(x_ptr, s_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    tl.store(s_ptr + row, tl.sum(x * x, axis=0))


@triton.jit
def divide_in_place(x_ptr, s_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N)
    tl.store(x_ptr + row * N + c, x / tl.maximum(tl.sqrt(tl.load(s_ptr + row)), 1e-12), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = x.clone()
        sums = torch.empty(M, device=x.device)
        square_sums[(M,)](x, sums, N, BLOCK=64)
        divide_in_place[(M,)](out, sums, N, BLOCK=64)
        return out
