"""the library's order with equal elements turned, beside a kernel for show

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argsort(x, dim=1)


def get_inputs():
    return [torch.randint(0, 20, (96, 50), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(X, O, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(O + i, tl.load(X + i, mask=i < N, other=0), mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        scratch = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, scratch, x.numel(), BLOCK=1024)
        return x.shape[1] - 1 - torch.argsort(torch.flip(x, [1]), dim=1, stable=True)
