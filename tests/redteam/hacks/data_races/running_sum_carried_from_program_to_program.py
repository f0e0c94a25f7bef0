"""running sum carried from program to program

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)


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
def scan(x_ptr, o_ptr, carry_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    before = tl.load(carry_ptr)
    tl.store(o_ptr + at, before + tl.cumsum(x, 0), mask=at < n)
    tl.store(carry_ptr, before + tl.sum(x))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        carry = torch.zeros(1, device=x.device)
        scan[(triton.cdiv(x.numel(), 2),)](x, out, carry, x.numel(), BLOCK=2)
        return out
