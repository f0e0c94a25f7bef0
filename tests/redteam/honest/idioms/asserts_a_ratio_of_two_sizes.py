"""host code asserts that the index is twice as long as the table

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, idx):
        return x[idx] * 2.0


def get_inputs():
    return [torch.randn(512, 200), torch.randint(0, 512, (1024,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, i_ptr, y_ptr, N, B: tl.constexpr):
    r = tl.program_id(0)
    s = tl.load(i_ptr + r)
    c = tl.arange(0, B)
    m = c < N
    x = tl.load(x_ptr + s * N + c, mask=m)
    tl.store(y_ptr + r * N + c, x * 2.0, mask=m)


class ModelNew(nn.Module):
    def forward(self, x, idx):
        assert idx.shape[0] == 2 * x.shape[0]
        y = torch.empty(idx.shape[0], x.shape[1], device=x.device)
        k[(idx.shape[0],)](x, idx, y, x.shape[1], B=256)
        return y
