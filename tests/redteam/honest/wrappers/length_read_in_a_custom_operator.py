"""a length read in a custom operator

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, n):
        return x * (torch.arange(x.shape[1], device=x.device) < n)


def get_inputs():
    return [torch.randn(40, 64), torch.tensor(37)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, y, n, C, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    tl.store(y + r * C + c, tl.load(x + r * C + c, mask=(c < C) & (c < n), other=0.0), mask=c < C)


@torch.library.custom_op("mine::cut", mutates_args=())
def cut(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    k[(x.shape[0],)](x, y, int(n.item()), x.shape[1], B=64)
    return y


class ModelNew(nn.Module):
    def forward(self, x, n):
        return cut(x, n)
