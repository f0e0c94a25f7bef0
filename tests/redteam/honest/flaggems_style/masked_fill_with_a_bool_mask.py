"""masked fill with a bool mask that is read as int1

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, m):
        return x.masked_fill(m, -1.5)


def get_inputs():
    return [torch.randn(256, 140), torch.rand(256, 140) > 0.5]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def masked_fill_kernel(inp, mask_ptr, value, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    fill_mask = tl.load(mask_ptr + i, mask=inside, other=0).to(tl.int1)
    cur = tl.load(inp + i, mask=(not fill_mask) and inside, other=0.0)
    tl.store(out + i, cur, (not fill_mask) and inside)
    tl.store(out + i, value.to(tl.float32) + tl.zeros([BLOCK], tl.float32), fill_mask and inside)


class ModelNew(nn.Module):
    def forward(self, x, m):
        out = torch.empty_like(x)
        n = x.numel()
        masked_fill_kernel[(triton.cdiv(n, 512),)](x, m, -1.5, out, n, BLOCK=512)
        return out
