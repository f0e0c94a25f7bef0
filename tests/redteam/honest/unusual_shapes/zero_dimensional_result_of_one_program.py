"""a scalar result of one program that loops over everything

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().max()


def get_inputs():
    return [torch.randn(120, 40)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def absmax_kernel(X, O, n, BLOCK: tl.constexpr):
    best = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.abs(tl.load(X + i, mask=i < n, other=0.0)))
    tl.store(O, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), dtype=x.dtype, device=x.device)
        absmax_kernel[(1,)](x, out, x.numel(), BLOCK=512)
        return out
