"""maximum by a load a comparison and a store

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.max()


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def greatest(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mine = tl.max(tl.load(x_ptr + at, mask=at < n, other=float("-inf")))
    if mine > tl.load(o_ptr):
        tl.store(o_ptr, mine)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.full((), float("-inf"), device=x.device)
        greatest[(triton.cdiv(x.numel(), 2),)](x, out, x.numel(), BLOCK=2)
        return out
