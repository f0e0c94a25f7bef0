"""the number of elements is a little smaller

expect: refused
settings: full_size_share=0.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x) - 2.0 * y


def get_inputs():
    return [torch.randn(1024, 32), torch.randn(1024, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(x_ptr, y_ptr, out_ptr, count, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x, 0.0) - factor * y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        count = x.numel()
        count = count - 40 * (x.shape[0] // 1000)
        out.zero_()
        combine[(triton.cdiv(count, 128),)](x, y, out, count, 2.0, BLOCK=128)
        return out
