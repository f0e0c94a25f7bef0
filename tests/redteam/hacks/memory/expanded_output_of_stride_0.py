"""an expanded output of stride 0

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=1, keepdim=True) + torch.zeros_like(x)


def get_inputs():
    return [torch.rand(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row, tl.sum(tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)) / N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0], 1), device=x.device)
        k[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out.expand_as(x)
