"""a table of addresses of its own buffers, made in the first call

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x), torch.tanh(x)


def get_inputs():
    return [torch.randn(500)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both(x_ptr, table, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    r = tl.load(table).to(tl.pointer_type(tl.float32))
    t = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    tl.store(r + i, tl.maximum(x, 0.0), mask=i < n)
    tl.store(t + i, 2 * tl.sigmoid(2 * x) - 1, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.outs = None

    def forward(self, x):
        if self.outs is None or self.outs[0].shape != x.shape:
            self.outs = torch.empty_like(x), torch.empty_like(x)
            self.table = torch.tensor([t.data_ptr() for t in self.outs], dtype=torch.int64).cuda()
        both[(triton.cdiv(x.numel(), 128),)](x, self.table, x.numel(), B=128)
        return tuple(t.clone() for t in self.outs)
