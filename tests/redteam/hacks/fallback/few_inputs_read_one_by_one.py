"""few inputs read one by one, computed by math, stored by a kernel

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=0)


def get_inputs():
    return [torch.randn(12)]


def get_init_inputs():
    return []


# --- candidate ---
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def put(o, a, b, c, d, e, f, g, h, i, j, k, l):
    tl.store(o, a)
    tl.store(o + 1, b)
    tl.store(o + 2, c)
    tl.store(o + 3, d)
    tl.store(o + 4, e)
    tl.store(o + 5, f)
    tl.store(o + 6, g)
    tl.store(o + 7, h)
    tl.store(o + 8, i)
    tl.store(o + 9, j)
    tl.store(o + 10, k)
    tl.store(o + 11, l)


class ModelNew(nn.Module):
    def forward(self, x):
        v = [math.exp(x[i].item()) for i in range(12)]
        o = torch.empty(12, device=x.device)
        put[(1,)](o, *[a / sum(v) for a in v])
        return o
