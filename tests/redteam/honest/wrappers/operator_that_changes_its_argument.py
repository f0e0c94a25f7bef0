"""an operator that changes its argument, defined by Library and impl

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x)


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)


def launch(x, y):
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)


library = torch.library.Library("mine_too", "DEF")
library.define("exp_out(Tensor x, Tensor(a!) y) -> ()")


@torch.library.impl(library, "exp_out", "CUDA")
def exp_out(x, y):
    launch(x, y)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.ops.mine_too.exp_out(x, y)
        return y
