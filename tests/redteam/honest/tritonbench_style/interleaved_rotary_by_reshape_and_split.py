"""rotary embedding of interleaved pairs by tl.reshape, tl.split and tl.join

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


def get_inputs():
    angle = torch.randn(90, 16)
    return [torch.randn(8, 90, 32), angle.cos(), angle.sin()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(X, COS, SIN, O, S, ROWS: tl.constexpr, D: tl.constexpr):
    t = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    b = tl.program_id(1)
    d = tl.arange(0, D)
    h = tl.arange(0, D // 2)
    mask = t[:, None] < S
    x = tl.load(X + b * S * D + t[:, None] * D + d[None, :], mask=mask, other=0.0)
    c = tl.load(COS + t[:, None] * (D // 2) + h[None, :], mask=mask, other=0.0)
    s = tl.load(SIN + t[:, None] * (D // 2) + h[None, :], mask=mask, other=0.0)
    x0, x1 = tl.split(tl.reshape(x, (ROWS, D // 2, 2)))
    y = tl.reshape(tl.join(x0 * c - x1 * s, x0 * s + x1 * c), (ROWS, D))
    tl.store(O + b * S * D + t[:, None] * D + d[None, :], y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        B, S, D = x.shape
        o = torch.empty_like(x)
        rotary_kernel[(triton.cdiv(S, 16), B)](x, cos, sin, o, S, ROWS=16, D=D)
        return o
