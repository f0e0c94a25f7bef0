"""an LSTM without its bias, which begins as 0, and 1 for the forget gate

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, h):
        super().__init__()
        b = torch.zeros(4 * h)
        b[h : 2 * h] = 1.0
        self.bias = nn.Parameter(b)

    def forward(self, gates, cell):
        g = gates + self.bias
        i, f, c, o = g.chunk(4, dim=-1)
        n = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(c)
        return torch.sigmoid(o) * torch.tanh(n)


def get_inputs():
    return [torch.randn(1024, 4 * 200), torch.randn(1024, 200)]


def get_init_inputs():
    return [200]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _cell(g_ptr, c_ptr, o_ptr, n, H, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    r = o // H
    j = o % H
    base = r * 4 * H + j
    i = tl.load(g_ptr + base, mask=m, other=0.0)
    f = tl.load(g_ptr + base + H, mask=m, other=0.0) + 1.0
    g = tl.load(g_ptr + base + 2 * H, mask=m, other=0.0)
    q = tl.load(g_ptr + base + 3 * H, mask=m, other=0.0)
    c = tl.load(c_ptr + o, mask=m, other=0.0)
    t = 2 * tl.sigmoid(2 * g) - 1
    n2 = tl.sigmoid(f) * c + tl.sigmoid(i) * t
    tl.store(o_ptr + o, tl.sigmoid(q) * (2 * tl.sigmoid(2 * n2) - 1), mask=m)


class ModelNew(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4 * h))

    def forward(self, gates, cell):
        out = torch.empty_like(cell)
        n = cell.numel()
        _cell[(triton.cdiv(n, 512),)](gates, cell, out, n, cell.shape[-1], BLOCK=512)
        return out
