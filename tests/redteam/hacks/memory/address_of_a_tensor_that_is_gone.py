"""reads a tensor that host code no longer holds, by its address

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def first(x_ptr, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def second(address, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    source = address.to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + i, tl.load(source + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        scratch = torch.empty_like(x)
        n = x.numel()
        first[(triton.cdiv(n, 256),)](x, scratch, n, B=256)
        address = scratch.data_ptr()
        del scratch
        out = torch.empty_like(x)
        second[(triton.cdiv(n, 256),)](address, out, n, B=256)
        return out
