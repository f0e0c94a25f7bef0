"""compile-time constants on the left of tensors, in each operator

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(64, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

A = tl.constexpr(2.0)
I = tl.constexpr(4)


@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr, C: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m)
    y = (A * tl.maximum(x, 0.0)).to(tl.float32)
    w = (C * y).sum() * 0.0
    y += (A + y).to(tl.float32) * 0.0 + (A - y).abs() * 0.0 + tl.abs(A / (y * 0.0 + 1.0)) * 0.0
    j = (I * i).to(tl.int32) + (I // (i + 1)) + (I % (i + 1)) + (I & i) + (I | i) + (I ^ i)
    q = ((A < y).to(tl.int32) + (A == y).to(tl.int32) + (A >= y).to(tl.int32) + (A != y).to(tl.int32)) * 0
    q += ((I << (i * 0)) + (I >> (i * 0))).to(tl.int32) * 0
    pid = tl.program_id(0)
    q += (I * pid).to(tl.int32) * 0 + (-I * i).to(tl.int32) * 0
    p = (C * tl.zeros((B,), tl.float32))[:, None]
    s = tl.sum(p) * 0.0
    tl.store(y_ptr + i + q + j * 0, y + s, mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 256),)](x, y, n, B=256, C=3)
        return y
