"""flag gems style nan check by logical operators on a scalar

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1)


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
def row_max(x_ptr, o_ptr, M, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    if EVEN or (M > 0 and N > 0):
        x = tl.load(x_ptr + row * N + c, mask=(c < N) and (row < M), other=float("-inf"))
        tl.store(o_ptr + row, tl.max(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        row_max[(x.shape[0],)](x, out, x.shape[0], x.shape[1], BLOCK=64, EVEN=x.shape[1] == 64)
        return out
