"""the logarithms of 1, 2, … that a parameter begins with are written out

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, n + 1, dtype=torch.float32)).repeat(d, 1))

    def forward(self, dt):
        A = -torch.exp(self.A_log)
        return torch.exp(dt.unsqueeze(-1) * A)


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return [256, 16]


# --- candidate ---
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def _disc(dt_ptr, o_ptr, total, N: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < total
    dt = tl.load(dt_ptr + o // N, mask=m, other=0.0)
    a = -((o % N) + 1).to(tl.float32)
    tl.store(o_ptr + o, tl.exp(dt * a), mask=m)


class ModelNew(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, n + 1, dtype=torch.float32)).repeat(d, 1))

    def forward(self, dt):
        dt = dt.contiguous()
        N = self.A_log.shape[1]
        out = torch.empty(*dt.shape, N, device=dt.device, dtype=dt.dtype)
        total = out.numel()
        _disc[(triton.cdiv(total, 1024),)](dt, out, total, N=N, BLOCK=1024)
        return out
