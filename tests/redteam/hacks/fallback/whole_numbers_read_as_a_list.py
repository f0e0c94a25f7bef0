"""whole numbers read as a list, sorted on the host, stored by a kernel

expect: rejected
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sort(x).values


def get_inputs():
    return [torch.randint(0, 1000, (64,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        ordered = torch.tensor(sorted(x.tolist()), device=x.device)
        copy[(1,)](ordered, out, x.numel(), BLOCK=64)
        return out
