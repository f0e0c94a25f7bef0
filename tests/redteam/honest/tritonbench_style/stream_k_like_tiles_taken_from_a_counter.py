"""persistent programs that take tiles from an atomic counter

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x) - 1.0


def get_inputs():
    return [torch.randn(300, 90)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def worker_kernel(X, O, Counter, n, tiles, BLOCK: tl.constexpr):
    tile = tl.atomic_add(Counter, 1)
    while tile < tiles:
        i = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(X + i, mask=i < n)
        tl.store(O + i, tl.exp(x) - 1.0, mask=i < n)
        tile = tl.atomic_add(Counter, 1)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        counter = torch.zeros(1, dtype=torch.int32, device=x.device)
        worker_kernel[(8,)](x, out, counter, n, triton.cdiv(n, 1024), BLOCK=1024)
        return out
