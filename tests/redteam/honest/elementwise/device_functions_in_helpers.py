"""device functions in helpers, a helper class of static methods

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cdf(x):
    return 0.5 * (1.0 + tl.math.erf(x * 0.7071067811865476))


@triton.jit
def gelu(x):
    return x * cdf(x)


@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, gelu(tl.load(x_ptr + i, mask=i < n)), mask=i < n)


class Launcher:
    BLOCK = 512

    @staticmethod
    def run(x):
        out = torch.empty_like(x)
        gelu_kernel[(triton.cdiv(x.numel(), Launcher.BLOCK),)](x, out, x.numel(), Launcher.BLOCK)
        return out


class ModelNew(nn.Module):
    def forward(self, x):
        return Launcher.run(x)
