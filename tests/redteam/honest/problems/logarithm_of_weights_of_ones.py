"""an input of ones beside one whose values must be positive

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return torch.log(x + 1e-3) * w


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
def weighted_log(x_ptr, w_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    x = tl.load(x_ptr + at, mask=mask, other=1.0)
    w = tl.load(w_ptr + at % D, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.log(x + 1e-3) * w, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty_like(x)
        weighted_log[(triton.cdiv(x.numel(), 256),)](x, w, out, x.numel(), x.shape[1], BLOCK=256)
        return out
