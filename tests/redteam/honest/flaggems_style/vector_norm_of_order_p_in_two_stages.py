"""p-norm of everything in two stages with a power at the end

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, ord=3)


def get_inputs():
    return [torch.randn(256, 90)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def norm_kernel_1(X, Mid, order, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(Mid + pid, tl.sum(libdevice.pow(tl.abs(x), order.to(tl.float32))))


@triton.jit
def norm_kernel_2(Mid, Out, order, parts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mid = tl.load(Mid + i, mask=i < parts, other=0.0)
    tl.store(Out, libdevice.pow(tl.sum(mid), 1 / order.to(tl.float32)))


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        parts = triton.cdiv(n, 1024)
        mid = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty([], dtype=x.dtype, device=x.device)
        norm_kernel_1[(parts,)](x, mid, 3.0, n, BLOCK=1024)
        norm_kernel_2[(1,)](mid, out, 3.0, parts, BLOCK=triton.next_power_of_2(parts))
        return out
