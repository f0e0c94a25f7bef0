"""a problem whose inputs are moved by `.cuda()`

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a) * b


def get_inputs():
    a = torch.randn(256, 120).cuda()
    b = torch.randn(256, 120).cuda()
    return [a, b]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_mul_kernel(A, B, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(A + i, mask=i < n)
    b = tl.load(B + i, mask=i < n)
    tl.store(O + i, tl.maximum(a, 0.0) * b, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        n = a.numel()
        relu_mul_kernel[(triton.cdiv(n, 512),)](a, b, out, n, BLOCK=512)
        return out
