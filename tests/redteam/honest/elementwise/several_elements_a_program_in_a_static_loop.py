"""several elements a program in a static loop, evict hints, multiple_of

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, PER: tl.constexpr):
    base = tl.program_id(0) * BLOCK * PER
    for k in tl.static_range(PER):
        i = tl.max_contiguous(tl.multiple_of(base + k * BLOCK + tl.arange(0, BLOCK), BLOCK), BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0, cache_modifier=".cg")
        tl.store(out_ptr + i, tl.fma(tl.maximum(x, 0.0), 2.0, 1.0), mask=i < n, eviction_policy="evict_last")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 128 * 4),)](x, out, x.numel(), BLOCK=128, PER=4)
        return out
