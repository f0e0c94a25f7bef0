"""permuted input read by its three strides, contiguous output

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x.mean(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(16, 96, 40).permute(1, 0, 2)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, s0, s1, s2, A, B, C, BLOCK: tl.constexpr):
    a = tl.program_id(0)
    b = tl.program_id(1)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + a * s0 + b * s1 + c * s2, mask=c < C, other=0.0)
    mean = tl.sum(x, axis=0) / C
    tl.store(y_ptr + (a * B + b) * C + c, tl.sigmoid(x) * mean, mask=c < C)


class ModelNew(nn.Module):
    def forward(self, x):
        A, B, C = x.shape
        y = torch.empty((A, B, C), device=x.device, dtype=x.dtype)
        k[(A, B)](x, y, x.stride(0), x.stride(1), x.stride(2), A, B, C, BLOCK=64)
        return y
