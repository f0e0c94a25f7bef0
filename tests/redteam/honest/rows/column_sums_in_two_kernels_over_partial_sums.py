"""column sums in two kernels over partial sums

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


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
def partial_sums(x_ptr, part_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    r = p * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
    tl.store(part_ptr + p * N + c, tl.sum(x, axis=0), mask=c < N)


@triton.jit
def add_up(part_ptr, out_ptr, P, N, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for p in range(P):
        acc += tl.load(part_ptr + p * N + c, mask=c < N, other=0.0)
    tl.store(out_ptr + c, acc, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        P = triton.cdiv(M, 16)
        part = torch.empty((P, N), device=x.device, dtype=torch.float32)
        out = torch.empty(N, device=x.device)
        partial_sums[(P,)](x, part, M, N, ROWS=16, BLOCK=64)
        add_up[(triton.cdiv(N, 32),)](part, out, P, N, BLOCK=32)
        return out
