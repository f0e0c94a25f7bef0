"""negated flag of one number beside a mask

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, h):
        return torch.where(h[0] > 0.3, torch.zeros_like(x), x + 1)


def get_inputs():
    return [torch.randn(512, 96), torch.randn(4)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def flag_kernel(x_ptr, h_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    late = tl.load(h_ptr) > 0.3
    tl.store(out_ptr + i, x + 1, mask=(i < n) & ~late)
    tl.store(out_ptr + i, tl.zeros_like(x), mask=(i < n) & late)


class ModelNew(nn.Module):
    def forward(self, x, h):
        out = torch.empty_like(x)
        n = out.numel()
        flag_kernel[(triton.cdiv(n, 256),)](x, h, out, n, BLOCK=256)
        return out
