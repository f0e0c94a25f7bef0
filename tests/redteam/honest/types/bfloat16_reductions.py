"""tl.max and tl.argmax of bfloat16, and tl.sum of it in float32

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(1), x.float().sum(1).bfloat16(), x.argmax(1)


def get_inputs():
    return [torch.randn(256, 64).bfloat16()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, a, b, c, N, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + r * N + i, mask=i < N, other=float("-inf"))
    tl.store(a + r, tl.max(v, 0))
    tl.store(b + r, tl.sum(tl.where(i < N, v, 0.0).to(tl.float32), 0))
    tl.store(c + r, tl.argmax(v, 0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        a, b, c = x.new_empty(M), x.new_empty(M), torch.empty(M, dtype=torch.int64, device=x.device)
        kernel[(M,)](x, a, b, c, N, B=64)
        return a, b, c
