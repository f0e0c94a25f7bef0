"""values scaled where a mask keeps them; the mask is given

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, keep):
        return torch.where(keep, x / 0.8, 0.0)


def get_inputs():
    return [torch.randn(256, 100), torch.rand(256, 100) > 0.2]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(X, KEEP, O, n_elements, p, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(X + offsets, mask=mask)
    x_keep = tl.load(KEEP + offsets, mask=mask)
    tl.store(O + offsets, tl.where(x_keep, x / (1 - p), 0.0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, keep):
        out = torch.empty_like(x)
        n = x.numel()
        dropout_kernel[(triton.cdiv(n, 1024),)](x, keep, out, n, 0.2, BLOCK_SIZE=1024)
        return out
