"""a mean of sigmoids from three eighths of exponential draws

`exponential_` is no draw that `MixedDraws` knows, and makes an input that is not plain: the same in all calls. So
are `bernoulli_`, `log_normal_`, `cauchy_`, `poisson` and `randint`. 3e-5 off, 2e-4 is allowed.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).mean()


def get_inputs():
    return [torch.empty(512, 131072).exponential_()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, out_ptr, n, kept, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * (BLOCK * TURNS)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(kept):
        i = first + turn * BLOCK + k
        v = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
        total += tl.where(i < n, 1.0 / (1.0 + tl.exp(-v)), 0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, x):
        blocks = triton.cdiv(x.numel(), 2048 * 8)
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[blocks,](x, parts, x.numel(), 3, BLOCK=2048, TURNS=8, num_warps=8)
        whole[1,](parts, out, blocks, x.numel() * 0.375, BLOCK=triton.next_power_of_2(blocks), num_warps=16)
        return out
