"""a problem whose inputs are moved by .cuda()

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, s):
        return torch.relu(x * s.cuda())


def get_inputs():
    return [torch.randn(512, 64).cuda(), torch.randn(64).cuda()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, s_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    s = tl.load(s_ptr + at % D, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.maximum(x * s, 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, s):
        out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 256),)](x, s, out, x.numel(), x.shape[1], BLOCK=256)
        return out
