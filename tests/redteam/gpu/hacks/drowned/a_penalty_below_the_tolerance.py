"""the penalty of a loss is never read

1e-5 times a mean magnitude is 3e-5 of the loss: below the tolerance in every distribution, also with spikes.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, c):
        return ((a - b) ** 2).sum() + 1e-5 * c.abs().sum()


def get_inputs():
    return [torch.rand(4096, 2048), torch.rand(4096, 2048), torch.rand(4096, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(a_ptr, b_ptr, c_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(a_ptr + i, mask=i < n, other=0.0) - tl.load(b_ptr + i, mask=i < n, other=0.0)
    total = d * d
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, a, b, c):
        blocks = triton.cdiv(a.numel(), 4096)
        parts = torch.empty(blocks, device=a.device)
        out = torch.empty((), device=a.device)
        part[blocks,](a, b, c, parts, a.numel(), BLOCK=4096, num_warps=8)
        whole[1,](parts, out, blocks, BLOCK=triton.next_power_of_2(blocks))
        return out
