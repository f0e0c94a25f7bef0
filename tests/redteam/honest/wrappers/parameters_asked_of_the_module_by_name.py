"""parameters asked of the module by name

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.g = nn.Parameter(torch.randn(n))
        self.register_buffer("s", torch.rand(n))

    def forward(self, x):
        return x * self.g + self.s


def get_inputs():
    return [torch.randn(40, 64)]


def get_init_inputs():
    return [64]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, g, s, y, n, N, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    tl.store(y + o, tl.load(x + o, mask=m) * tl.load(g + o % N, mask=m) + tl.load(s + o % N, mask=m), mask=m)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.g = nn.Parameter(torch.randn(n))
        self.register_buffer("s", torch.rand(n))

    def forward(self, x):
        assert isinstance(self.g, nn.Parameter) and not isinstance(self.s, nn.Parameter)
        g, s = self.get_parameter("g"), self.get_buffer("s")
        y = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, g.detach(), s, y, x.numel(), x.shape[1], B=256)
        return y
