"""bool input viewed as int8

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, m):
        return x.masked_fill(m, 0.5)


def get_inputs():
    return [torch.randn(512, 64), torch.randint(0, 2, (512, 64)).bool()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked(x_ptr, m_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.load(m_ptr + i, mask=i < n, other=0) == 0
    x = tl.load(x_ptr + i, mask=(i < n) & keep, other=0.5)
    tl.store(y_ptr + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, m):
        y = torch.empty_like(x)
        masked[(triton.cdiv(x.numel(), 256),)](x, m.view(torch.int8), y, x.numel(), BLOCK=256)
        return y
