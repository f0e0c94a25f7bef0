"""the class of the output says other strides than it has

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x):
        return torch.relu(x).t().contiguous()


def get_inputs():
    return [torch.randn(200, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rk(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    tl.store(o_ptr + o, tl.maximum(x, 0.0), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x):
        out = torch.empty(x.shape[1], x.shape[0], device=x.device)
        rk[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        T = type(out)
        if T is not torch.Tensor:
            me = out
            T.stride = lambda s: (1, s.shape[0]) if s is me else torch.Tensor.stride(s)
        return out
