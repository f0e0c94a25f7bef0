"""total zeroed by the first program which nobody waits for

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum()


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def total(x_ptr, o_ptr, started_ptr, n, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    at = p * BLOCK + tl.arange(0, BLOCK)
    if p == 0:
        tl.store(o_ptr, 0.0)
    tl.atomic_add(started_ptr, 1)
    tl.atomic_add(o_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device)
        started = torch.zeros((), dtype=torch.int32, device=x.device)
        total[(triton.cdiv(x.numel(), 2),)](x, out, started, x.numel(), BLOCK=2)
        return out
