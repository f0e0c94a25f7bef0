"""linear recurrence with tl.associative_scan

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, x):
        h = torch.zeros_like(x[:, 0])
        out = [h := a[:, t] * h + x[:, t] for t in range(x.shape[1])]
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.rand(256, 32), torch.randn(256, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2


@triton.jit
def scan(a_ptr, x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * N + c, mask=c < N, other=1.0)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    _, h = tl.associative_scan((a, x), 0, combine)
    tl.store(out_ptr + row * N + c, h, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, a, x):
        out = torch.empty_like(x)
        scan[(x.shape[0],)](a, x, out, x.shape[1], BLOCK=32)
        return out
