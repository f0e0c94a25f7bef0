"""recurrent network that keeps its last state as the first of the next call

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(width, 24, 2)
        self.h0 = torch.randn(2, 5, 24)

    def forward(self, x):
        self.h0 = self.h0.to(x.device)
        return torch.relu(self.gru(x, self.h0)[0])


def get_inputs():
    return [torch.randn(7, 5, 16)]


def get_init_inputs():
    return [16]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.maximum(tl.load(x_ptr + i, mask=i < n, other=0.0), 0.0), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(width, 24, 2)
        self.h0 = torch.randn(2, 5, 24)

    def forward(self, x):
        y, self.h0 = self.gru(x, self.h0)
        out = torch.empty_like(y)
        n = out.numel()
        relu_kernel[(triton.cdiv(n, 256),)](y, out, n, BLOCK=256)
        return out
