"""names of parameters beyond ASCII

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(1024, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(größe_ptr, out_ptr, n, 块: tl.constexpr):
    i = tl.program_id(0) * 块 + tl.arange(0, 块)
    größe = tl.load(größe_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.maximum(größe, 0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 1024),)](x, out, n, 块=1024)
        return out
