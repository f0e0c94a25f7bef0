"""a problem whose inputs and parameters are made with `device="cuda"`

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n, device="cuda"))

    def forward(self, x):
        return torch.sigmoid(x) * self.scale


def get_inputs():
    return [torch.randn(200, 72, device="cuda")]


def get_init_inputs():
    return [72]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(X, S, O, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N)
    s = tl.load(S + i, mask=i < N)
    tl.store(O + row * N + i, tl.sigmoid(x) * s, mask=i < N)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n, device="cuda"))

    def forward(self, x):
        out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
        scaled_kernel[(x.shape[0],)](x, self.scale, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
