"""one program for all rows

expect: correct
most_speedup: 0.2
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


def get_inputs():
    return [torch.randn(1024, 4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in range(M):
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
        tl.store(out_ptr + row * N + columns, x * 0.5 + 1.0, mask=columns < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[(1,)](x, out, M, N, BLOCK=4096)
        return out
