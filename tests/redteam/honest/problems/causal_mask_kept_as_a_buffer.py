"""a causal mask that the reference keeps as a buffer and the kernel computes

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("causal", torch.tril(torch.ones(32, 32)))

    def forward(self, x):
        return torch.softmax(x.masked_fill(self.causal == 0, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(128, 32, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def causal_softmax(x_ptr, out_ptr, T, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    keep = (cols < T) & (cols <= at % T)
    x = tl.load(x_ptr + at * T + cols, mask=keep, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + at * T + cols, x / tl.sum(x, axis=0), mask=cols < T)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        causal_softmax[(x.shape[0] * x.shape[1],)](x, out, x.shape[2], BLOCK=32)
        return out
