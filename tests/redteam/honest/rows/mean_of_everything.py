"""mean of everything: partial sums, then one program, 0-d output

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x).mean()


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def stage1(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tanh(x), axis=0))


@triton.jit
def stage2(part_ptr, out_ptr, P, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(part_ptr + i, mask=i < P, other=0.0), axis=0)
    tl.store(out_ptr, total / n)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        P = triton.cdiv(n, 1024)
        part = torch.empty(P, device=x.device, dtype=torch.float32)
        out = torch.empty((), device=x.device, dtype=torch.float32)
        stage1[(P,)](x, part, n, BLOCK=1024)
        stage2[(1,)](part, out, P, n, BLOCK=triton.next_power_of_2(P))
        return out
