"""many rows in the first direction of the grid

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


def get_inputs():
    return [torch.randn(70000, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
    tl.store(out_ptr + row * N + columns, x * 0.5 + 1.0, mask=columns < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
        return out
