"""an empty input beside a full one, and a scalar without dimensions

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, extra, scale):
        return torch.cat([x * scale, extra], dim=1)


def get_inputs():
    return [torch.randn(256, 32), torch.randn(256, 0), torch.tensor(0.5)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def times(x_ptr, scale_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(out_ptr + at, x * tl.load(scale_ptr), mask=at < count)


class ModelNew(nn.Module):
    def forward(self, x, extra, scale):
        out = torch.empty((x.shape[0], x.shape[1] + extra.shape[1]), device=x.device, dtype=x.dtype)
        times[(triton.cdiv(x.numel(), 256),)](x, scale, out, x.numel(), BLOCK=256)
        return out
