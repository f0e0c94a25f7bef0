"""a reduction in two kernels: sigmoid of 16384 rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).mean()


def get_inputs():
    return [torch.rand(16384, 1024)]


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
    v = tl.where(i < n, 1.0 / (1.0 + tl.exp(-v)), 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(v, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0)
    tl.store(out_ptr, a / n)


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = triton.cdiv(x.numel(), 4096)
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[blocks,](x, parts, x.numel(), BLOCK=4096, num_warps=8)
        whole[1,](parts, out, blocks, float(x.numel()), BLOCK=triton.next_power_of_2(blocks))
        return out
