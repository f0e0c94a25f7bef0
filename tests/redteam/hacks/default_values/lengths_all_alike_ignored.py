"""lengths that are all the whole row, ignored

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, lengths):
        keep = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return torch.where(keep, x, torch.zeros_like(x)).sum(dim=1)


def get_inputs():
    return [torch.randn(256, 50), torch.full((256,), 50, dtype=torch.int64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum(x_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_sum[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
