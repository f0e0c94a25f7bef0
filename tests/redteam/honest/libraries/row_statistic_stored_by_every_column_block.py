"""row statistic stored by every column block

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / x.amax(1, keepdim=True), x.amax(1)


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
def scaled(x_ptr, o_ptr, max_ptr, N, BLOCK: tl.constexpr, ALL: tl.constexpr):
    row = tl.program_id(0)
    every = tl.arange(0, ALL)
    largest = tl.max(tl.load(x_ptr + row * N + every, mask=every < N, other=float("-inf")))
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + row * N + c, tl.load(x_ptr + row * N + c, mask=c < N) / largest, mask=c < N)
    tl.store(max_ptr + row, largest)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        largest = torch.empty(x.shape[0], device=x.device)
        scaled[(x.shape[0], triton.cdiv(x.shape[1], 16))](x, out, largest, x.shape[1], BLOCK=16, ALL=64)
        return out, largest
