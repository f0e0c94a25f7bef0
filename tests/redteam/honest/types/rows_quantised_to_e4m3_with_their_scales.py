"""rows quantised to float8_e4m3fn, and their scales, by reciprocals

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        s = x.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
        return (x / s).clamp(-448, 448).to(torch.float8_e4m3fn), s


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def quant(x, y, s, n, B: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + r * n + i, mask=m, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(v), 0), 1e-4) * (1.0 / 448.0)
    q = tl.minimum(tl.maximum(v * (1.0 / scale), -448.0), 448.0)
    tl.store(y + r * n + i, q.to(tl.float8e4nv), mask=m)
    tl.store(s + r, scale)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device, dtype=torch.float8_e4m3fn)
        s = torch.empty(x.shape[0], 1, device=x.device)
        quant[(x.shape[0],)](x, y, s, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
        return y, s
