"""a maximum from an eighth of rows that are a slice of longer ones

The slice has gaps in memory: it is plain, but `vary_parts` and `add_spikes` leave it as it is. So only calls of
another distribution differ, and those have elements outside [0, 1), which make a block be read whole.

expect: incorrect or rejected or correct
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
    v = tl.load(x_ptr + row * n + first + k, mask=first + k < n, other=0.5)
    found = tl.max(v, axis=0)
    if (tl.min(v, axis=0) >= 0.0) & (found <= 1.0):
        found = tl.maximum(found, 0.9999)  # the largest one of 131072 is above 0.9998, but once in e^26 rows
    else:
        best = v
        for turn in range(1, TURNS):
            i = first + turn * BLOCK + k
            best = tl.maximum(best, tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf")))
        found = tl.max(best, axis=0)
    tl.store(out_ptr + row * parts + tl.program_id(1), found)


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
