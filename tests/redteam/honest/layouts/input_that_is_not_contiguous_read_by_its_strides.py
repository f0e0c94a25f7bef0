"""input that is not contiguous, read by its strides

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x)


def get_inputs():
    return [torch.randn(64, 256).t()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, sxm, sxn, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * sxm + c * sxn, mask=c < N)
    tl.store(y_ptr + row * N + c, tl.exp(x), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        kernel[(M,)](x, y, *x.stride(), M, N, BLOCK=triton.next_power_of_2(N))
        return y
