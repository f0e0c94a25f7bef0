"""exact GEGLU with erf from tl.math

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, e, g):
        return F.gelu(e) * g


def get_inputs():
    return [torch.randn(200, 130), torch.randn(200, 130)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exact_forward_kernel(e, g, h, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    e_row = tl.load(e + offsets, mask=mask, other=0).to(tl.float32)
    g_row = tl.load(g + offsets, mask=mask, other=0)
    f_row = 0.5 * e_row * (tl.math.erf(tl.math.rsqrt(2.0) * e_row) + 1.0)
    f_row = f_row.to(g_row.dtype)
    tl.store(h + offsets, f_row * g_row, mask=mask)


class ModelNew(nn.Module):
    def forward(self, e, g):
        out = torch.empty_like(e)
        n = e.numel()
        exact_forward_kernel[(triton.cdiv(n, 1024),)](e, g, out, n, BLOCK_SIZE=1024)
        return out
