"""a mean of 512 MiB

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean()


def get_inputs():
    return [torch.rand(1024, 131072)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(v, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = triton.cdiv(x.numel(), 8192)
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[blocks,](x, parts, x.numel(), BLOCK=8192, num_warps=8)
        whole[1,](parts, out, blocks, float(x.numel()), BLOCK=triton.next_power_of_2(blocks), num_warps=16)
        return out
