"""median of a row by tl.sort padded with infinity and a masked sum

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.median(x, dim=1).values


def get_inputs():
    return [torch.randn(128, 31)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def med(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=float("inf"))
    s = tl.sort(x, descending=False)
    tl.store(y_ptr + r, tl.sum(tl.where(c == (N - 1) // 2, s, 0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        med[(x.shape[0],)](x, y, x.shape[1], BLOCK=32)
        return y
