"""lookup table made on the host

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.arange(7, dtype=torch.int64)[(x + y) % 7] ** 2


def get_inputs():
    return [torch.randint(0, 1000, (512, 64)), torch.randint(0, 1000, (512, 64))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lookup(x_ptr, y_ptr, t_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    k = (tl.load(x_ptr + i, mask=m, other=0) + tl.load(y_ptr + i, mask=m, other=0)) % 7
    tl.store(o_ptr + i, tl.load(t_ptr + k, mask=m), mask=m)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(7, dtype=torch.int64) ** 2)

    def forward(self, x, y):
        o = torch.empty_like(x)
        lookup[(triton.cdiv(x.numel(), 512),)](x, y, self.table, o, x.numel(), BLOCK=512)
        return o
