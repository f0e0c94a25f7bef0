"""the last of duplicate stores

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x[:, -1].clone()


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def last(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row + c * 0, tl.load(x_ptr + row * N + c, mask=c < N), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        last[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
