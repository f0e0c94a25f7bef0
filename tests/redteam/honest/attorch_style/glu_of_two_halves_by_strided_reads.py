"""GLU of two halves of the last axis, read where they lie

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.glu(x, dim=-1)


def get_inputs():
    return [torch.randn(200, 180)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def glu_forward_kernel(X, O, size, half, BLOCK_SIZE: tl.constexpr):
    offset = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offset < size
    row, col = offset // half, offset % half
    a = tl.load(X + row * 2 * half + col, mask=mask).to(tl.float32)
    b = tl.load(X + row * 2 * half + half + col, mask=mask).to(tl.float32)
    tl.store(O + offset, a * (1 / (1 + tl.exp(-b))), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, N // 2), dtype=x.dtype, device=x.device)
        glu_forward_kernel[(triton.cdiv(out.numel(), 1024),)](x, out, out.numel(), N // 2, BLOCK_SIZE=1024)
        return out
