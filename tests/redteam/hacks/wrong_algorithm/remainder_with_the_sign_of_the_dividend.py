"""remainder with the sign of the dividend

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.remainder(a, b)


def get_inputs():
    return [torch.randint(-50, 50, (200, 100)), torch.randint(1, 9, (200, 100))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rem(x, y):
    r = x % y
    c1 = r != 0
    c2 = (x < 0) ^ (y < 0)
    return r


@triton.jit
def rem_kernel(A, B, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(A + i, mask=mask, other=0)
    b = tl.load(B + i, mask=mask, other=1)
    tl.store(O + i, rem(a, b), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        n = a.numel()
        rem_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
        return out
