"""rows reversed in place by a program for each row

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.flip(0)


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
def copy(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, BLOCK)
    keep = tl.arange(0, BLOCK) < N
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=keep), mask=keep)


@triton.jit
def swap(o_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    if row < M // 2:
        here = tl.load(o_ptr + row * N + c, mask=c < N)
        there = tl.load(o_ptr + (M - 1 - row) * N + c, mask=c < N)
        tl.store(o_ptr + row * N + c, there, mask=c < N)
        tl.store(o_ptr + (M - 1 - row) * N + c, here, mask=c < N)
    else:
        mine = tl.load(o_ptr + row * N + c, mask=c < N)
        tl.store(o_ptr + row * N + c, mine * 1.0, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        copy[(M,)](x, out, N, BLOCK=64)
        swap[(M,)](out, M, N, BLOCK=64)
        return out
