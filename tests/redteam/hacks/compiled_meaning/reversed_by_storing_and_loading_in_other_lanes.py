"""reversed by storing and loading in other lanes

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.flip(1)


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
def reverse(x_ptr, s_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0) * N
    c = tl.arange(0, BLOCK)
    tl.store(s_ptr + row + c, tl.load(x_ptr + row + c, mask=c < N), mask=c < N)
    tl.store(o_ptr + row + c, tl.load(s_ptr + row + N - 1 - c, mask=c < N), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out, scratch = torch.empty_like(x), torch.empty_like(x)
        reverse[(x.shape[0],)](x, scratch, out, x.shape[1], BLOCK=64)
        return out
