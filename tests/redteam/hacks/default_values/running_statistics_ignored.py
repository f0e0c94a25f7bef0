"""running statistics of zeros and ones ignored

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(48)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(512, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, w_ptr, b_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    col = at % D
    y = tl.load(x_ptr + at, mask=mask, other=0.0) * 0.999995
    y = y * tl.load(w_ptr + col, mask=mask, other=0.0) + tl.load(b_ptr + col, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(48)

    def forward(self, x):
        out = torch.empty_like(x)
        norm[(triton.cdiv(x.numel(), 256),)](x, self.norm.weight, self.norm.bias, out, x.numel(), x.shape[1], BLOCK=256)
        return out
