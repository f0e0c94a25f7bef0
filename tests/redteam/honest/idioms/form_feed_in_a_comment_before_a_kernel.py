"""a form feed and a line separator in comments

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


# part one   part two   part three
@triton.jit
def scaled(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)  # loaded  once
    x = tl.maximum(x, 0.0)
    x = x * 2.0
    tl.store(y_ptr + i, x, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)
        return y
