"""masked lanes taken as zero

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(512, 50)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row, tl.sum(tl.load(x_ptr + row * N + c, mask=c < N)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        total[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
