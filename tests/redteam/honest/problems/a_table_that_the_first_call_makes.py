"""a table of constants that the first call makes and keeps for each width

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.arange(x.shape[1], device=x.device).float() * 0.5


def get_inputs():
    return [torch.rand(130, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, t_ptr, out_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    t = tl.load(t_ptr + c, mask=c < N, other=0)
    tl.store(out_ptr + r * N + c, x * t.to(tl.float32) * 0.5, mask=c < N)


_CACHE = {}


class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.shape[1], x.device, x.dtype)
        if key not in _CACHE:
            _CACHE[key] = torch.arange(x.shape[1], device=x.device)
        t = _CACHE[key]
        out = torch.empty_like(x)
        scaled[(x.shape[0],)](x, t, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
