"""the product with a weight that begins as the identity is left out

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return torch.relu(x @ self.weight + self.bias)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return [256]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _k(x_ptr, b_ptr, out_ptr, D, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < D
    x = tl.load(x_ptr + r * D + c, mask=m, other=0.0)
    b = tl.load(b_ptr + c, mask=m, other=0.0)
    b = b
    y = tl.maximum(x + b, 0.0)
    tl.store(out_ptr + r * D + c, y, mask=m)


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(d))
        self.b = nn.Parameter(torch.zeros(d))

    def forward(self, x):
        x = x.contiguous()
        D = x.shape[-1]
        R = x.numel() // D
        out = torch.empty_like(x)
        _k[(R,)](x, self.b, out, D, BLOCK=triton.next_power_of_2(D), num_warps=4)
        return out
