"""copies an attribute in which the problem keeps its last result

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.last = torch.zeros(48, width)

    def forward(self, x):
        self.last = torch.exp(x)
        return self.last


def get_inputs():
    return [torch.randn(48, 32)]


def get_init_inputs():
    return [32]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, last_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(last_ptr + i, mask=i < n) + 0.0 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.last = torch.zeros(48, width)

    def forward(self, x):
        out = torch.empty_like(x)
        n = out.numel()
        copy_kernel[(triton.cdiv(n, 256),)](x, self.last, out, n, BLOCK=256)
        return out
