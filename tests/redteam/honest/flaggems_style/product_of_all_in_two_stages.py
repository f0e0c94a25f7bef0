"""product of rows by tl.reduce with a combine function of its own, in two stages

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.prod(x, dim=1)


def get_inputs():
    return [torch.rand(128, 260) * 0.2 + 0.9]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reduce_mul(a, b):
    return a * b


@triton.jit
def prod_kernel_mid(inp, mid, N, MID, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    offset = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(inp + row * N + offset, mask=offset < N, other=1.0).to(tl.float32)
    tl.store(mid + row * MID + part, tl.reduce(v, axis=0, combine_fn=reduce_mul))


@triton.jit
def prod_kernel_result(mid, out, MID, BLOCK_MID: tl.constexpr):
    row = tl.program_id(0)
    offset = tl.arange(0, BLOCK_MID)
    v = tl.load(mid + row * MID + offset, mask=offset < MID, other=1.0)
    tl.store(out + row, tl.reduce(v, axis=0, combine_fn=reduce_mul))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        parts = triton.cdiv(N, 64)
        mid = torch.empty((M, parts), dtype=torch.float32, device=x.device)
        out = torch.empty(M, dtype=x.dtype, device=x.device)
        prod_kernel_mid[(M, parts)](x, mid, N, parts, BLOCK=64)
        prod_kernel_result[(M,)](mid, out, parts, BLOCK_MID=triton.next_power_of_2(parts))
        return out
