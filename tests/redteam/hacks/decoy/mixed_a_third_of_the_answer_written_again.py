"""mixed: the kernel writes a third of the answer's elements over with the same

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(600, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + r * N + c, g / (tl.sum(x * x, axis=0) / N + 1.0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.nn.functional.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)
        kernel[(triton.cdiv(M, 3),)](x, y, M, N, BLOCK=128)
        return y
