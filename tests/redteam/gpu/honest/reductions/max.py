"""a reduction in two kernels: max

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax()


def get_inputs():
    return [torch.rand(4096, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0.0)
    v = tl.where(i < n, v, -float("inf"))
    tl.store(out_ptr + tl.program_id(0), tl.max(v, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.max(tl.load(part_ptr + i, mask=i < parts, other=-float("inf")), axis=0)
    tl.store(out_ptr, a)


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = x.numel() // 1024
        kept = blocks
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[kept,](x, parts, x.numel(), BLOCK=1024)
        whole[1,](parts, out, kept, kept * 1024.0, BLOCK=triton.next_power_of_2(blocks))
        return out
