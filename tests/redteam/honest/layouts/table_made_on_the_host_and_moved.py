"""table made on the host and moved

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x * torch.tensor([2.0, 3.0], device=x.device).repeat(128)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, w, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    t = 0
    for t in range(3):
        v = v * 1.0
    for t in range(2, -1, -1):
        v = v * 1.0
    tl.store(o + i, v * tl.load(w + i % 2), mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        w = torch.full((2,), 2.0)
        w[1:] = 3.0
        w = w.to(x.device)
        o = torch.empty(x.shape, device="cuda")
        k[(triton.cdiv(x.numel(), 1024),)](x, w, o, x.numel(), B=1024)
        return o
