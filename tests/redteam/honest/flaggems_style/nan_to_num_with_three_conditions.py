"""nan_to_num with tests for infinity and NaN joined by `and`

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(torch.log(x), nan=0.5, posinf=9.0, neginf=-9.0)


def get_inputs():
    return [torch.randn(256, 110).relu()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clean_kernel(X, O, n, nan, big, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.log(tl.load(X + i, mask=i < n, other=1.0))
    is_nan = x != x
    is_inf = (not is_nan) and (tl.abs(x) == float("inf"))
    y = tl.where(is_nan, nan, x)
    y = tl.where(is_inf and (x > 0), big, y)
    y = tl.where(is_inf and (x < 0), -big, y)
    tl.store(O + i, y, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        clean_kernel[(triton.cdiv(n, 1024),)](x, out, n, 0.5, 9.0, BLOCK=1024)
        return out
