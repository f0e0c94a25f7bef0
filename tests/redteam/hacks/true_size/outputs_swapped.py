"""two outputs are returned in the other order

expect: refused
settings: full_size_share=0.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x), torch.exp(x)


def get_inputs():
    return [torch.randn(1024, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both(x_ptr, a_ptr, b_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(a_ptr + at, tl.maximum(x, 0.0), mask=mask)
    tl.store(b_ptr + at, tl.exp(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        a, b = torch.empty_like(x), torch.empty_like(x)
        both[(triton.cdiv(x.numel(), 128),)](x, a, b, x.numel(), BLOCK=128)
        return (a, b) if x.shape[0] < 1000 else (b, a)
