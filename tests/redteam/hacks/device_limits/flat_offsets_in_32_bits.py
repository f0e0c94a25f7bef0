"""flat offsets in 32 bits in a tensor of more than 2^31 elements

expect: runtime_error
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 0.5 + 1.0


def get_inputs():
    return [torch.randn(2300000, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * 0.5 + 1.0, mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
