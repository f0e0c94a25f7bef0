"""module-level plain constants and a mode chosen by a string

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK_SIZE: tl.constexpr = tl.constexpr(256)
SLOPE = tl.constexpr(2.0)


@triton.jit
def act(x, MODE: tl.constexpr):
    if MODE == "relu":
        return tl.maximum(x, 0.0)
    elif MODE == "abs":
        return tl.abs(x)
    else:
        tl.static_assert(False, "no such mode")


@triton.jit
def kernel(x_ptr, out_ptr, n, MODE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, act(x, MODE) * SLOPE + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), MODE="relu")
        return out
