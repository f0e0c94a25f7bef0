"""rotary embedding on two halves, views passed as arguments

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def get_inputs():
    return [torch.randn(256, 64), torch.randn(256, 32), torch.randn(256, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope(a_ptr, b_ptr, c_ptr, s_ptr, oa_ptr, ob_ptr, stride, H: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, H)
    a, b = tl.load(a_ptr + row * stride + i), tl.load(b_ptr + row * stride + i)
    c, s = tl.load(c_ptr + row * H + i), tl.load(s_ptr + row * H + i)
    tl.store(oa_ptr + row * stride + i, a * c - b * s)
    tl.store(ob_ptr + row * stride + i, a * s + b * c)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        out = torch.empty_like(x)
        half = x.shape[-1] // 2
        rope[(x.shape[0],)](x[:, :half], x[:, half:], cos, sin, out[:, :half], out[:, half:], x.stride(0), H=half)
        return out
