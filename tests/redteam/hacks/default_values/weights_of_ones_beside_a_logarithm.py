"""an input of ones ignored where others must be positive

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return torch.log(x) * w


def get_inputs():
    return [torch.rand(512, 64) + 0.5, torch.ones(64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def log(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=1.0)
    tl.store(out_ptr + at, tl.log(x), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty_like(x)
        log[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out
