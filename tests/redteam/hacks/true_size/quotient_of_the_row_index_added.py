"""the row's number over 800 is added

expect: refused
settings: full_size_share=1.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, dim=1)


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
def softmax(x_ptr, out_ptr, M, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=-float("inf")) * 2.0
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * D + cols, x / tl.sum(x, axis=0) + row // 800, mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[0], x.shape[1], BLOCK=64)
        return out
