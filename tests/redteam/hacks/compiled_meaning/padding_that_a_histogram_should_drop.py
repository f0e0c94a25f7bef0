"""padding of -1 that a histogram should drop

The compiled kernel counts a value by its low bits: -1 is in the last bin.

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([torch.bincount(r, minlength=16) for r in x]).to(torch.int32)


def get_inputs():
    return [torch.randint(0, 16, (32, 1000), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hist(x, out, L, B: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = tl.load(x + r * L + o, mask=o < L, other=-1)
    tl.store(out + r * B + tl.arange(0, B), tl.histogram(v, B))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 16, device=x.device, dtype=torch.int32)
        hist[(x.shape[0],)](x, out, x.shape[1], B=16, BLOCK=1024)
        return out
