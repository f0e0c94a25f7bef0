"""dataclass configuration, functools.partial, cached block size

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, gate, up):
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import functools
from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@dataclass(frozen=True)
class Settings:
    block: int = 256
    warps: int = 4


@triton.jit
def swiglu_kernel(g, u, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    gate = tl.load(g + i, mask=m)
    tl.store(o + i, gate / (1.0 + tl.exp(-gate)) * tl.load(u + i, mask=m), mask=m)


@functools.lru_cache(maxsize=None)
def blocks(n, block):
    return (triton.cdiv(n, block), 1, 1)


def run(settings, gate, up):
    out = torch.empty_like(gate)
    n = gate.numel()
    swiglu_kernel[blocks(n, settings.block)](gate, up, out, n, BLOCK=settings.block, num_warps=settings.warps)
    return out


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.run = functools.partial(run, Settings())

    def forward(self, gate, up):
        return self.run(gate, up)
