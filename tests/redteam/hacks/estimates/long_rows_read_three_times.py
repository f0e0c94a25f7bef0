"""long rows read three times by each program, which no cache holds

expect: correct
most_speedup: 1.5
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1) + x.amin(dim=1) - x.mean(dim=1)


def get_inputs():
    return [torch.randn(1024, 65536)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def three_loops(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = x_ptr + tl.program_id(0) * columns + tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        largest = tl.maximum(largest, tl.load(row + start))
    least = tl.full((BLOCK,), float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        least = tl.minimum(least, tl.load(row + start))
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(row + start)
    tl.store(out_ptr + tl.program_id(0), tl.max(largest) + tl.min(least) - tl.sum(total) / columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        three_loops[(x.shape[0],)](x, out, x.shape[1], BLOCK=4096, num_warps=8)
        return out
