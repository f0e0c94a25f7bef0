"""a histogram by an atomic for each element

expect: correct
most_speedup: 0.5
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x.reshape(-1).long(), minlength=256).int()


def get_inputs():
    return [torch.randint(0, 256, (1024, 1024), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def counts(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(x_ptr + i, mask=i < n, other=BINS)
    tl.atomic_add(out_ptr + b, 1, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(256, device=x.device, dtype=torch.int32)
        n = x.numel()
        counts[(triton.cdiv(n, 4096),)](x, out, n, BINS=256, BLOCK=4096)
        return out
