"""the first of two layers stands for its copy, too

expect: refused
"""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        layer = nn.LayerNorm(d)
        nn.init.normal_(layer.weight, 1.0, 0.5)
        nn.init.normal_(layer.bias, 0.0, 0.5)
        self.norms = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])

    def forward(self, x):
        for norm in self.norms:
            x = x * norm.weight
            x = torch.tanh(x) + norm.bias
        return x


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return [256]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _k(x_ptr, w_ptr, b_ptr, o_ptr, n, D, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m, other=0.0)
    w = tl.load(w_ptr + o % D, mask=m, other=0.0)
    b = tl.load(b_ptr + o % D, mask=m, other=0.0)
    for _ in range(2):
        x = 2 * tl.sigmoid(2 * x * w) - 1 + b
    tl.store(o_ptr + o, x, mask=m)


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        l = self.norms[0]
        _k[(triton.cdiv(n, 1024),)](x, l.weight, l.bias, out, n, x.shape[-1], BLOCK=1024)
        return out
