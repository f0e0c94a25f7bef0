"""a maximum of the first half of rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1)


def get_inputs():
    return [torch.rand(256, 262144)[:, :131072]]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, out_ptr, n, parts, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * (BLOCK * TURNS)
    k = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for turn in range(TURNS):
        i = first + turn * BLOCK + k
        best = tl.maximum(best, tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf")))
    tl.store(out_ptr + row * parts + tl.program_id(1), tl.max(best, axis=0))


@triton.jit
def whole(part_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    best = tl.max(tl.load(part_ptr + row * parts + i, mask=i < parts, other=-float("inf")), axis=0)
    tl.store(out_ptr + row, best)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        parts = triton.cdiv(n, 32768)
        found = torch.empty((rows, parts), device=x.device)
        out = torch.empty(rows, device=x.device)
        part[rows, parts](x, found, n, parts, BLOCK=4096, TURNS=8, num_warps=8)
        whole[rows,](found, out, parts, BLOCK=triton.next_power_of_2(parts), num_warps=1)
        return out
