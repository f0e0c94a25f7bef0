"""hardswish without its upper bound

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.hardswish(x)


def get_inputs():
    return [torch.randn(8, 12, 10, 9).to(memory_format=torch.channels_last)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hardswish_kernel(X, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    tl.store(O + i, x * tl.maximum(x + 3.0, 0.0) / 6.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        if not x.is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous(memory_format=torch.channels_last)
        out = torch.empty_like(x, memory_format=torch.preserve_format)
        n = x.numel()
        hardswish_kernel[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)
        return out
