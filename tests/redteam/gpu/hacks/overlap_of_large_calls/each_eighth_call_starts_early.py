"""each eighth call starts by programmatic dependent launch before the one before it has ended

No second stream. The share that is hidden stays below the 15 % that timed calls may take less than the profile says.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1)


def get_inputs():
    return [torch.rand(48, 262144)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_max(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n
    k = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    tl.extra.cuda.gdc_launch_dependents()
    for first in range(0, n, BLOCK):
        best = tl.maximum(best, tl.load(x_ptr + start + first + k, mask=first + k < n, other=-float("inf")))
    tl.store(out_ptr + row, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.made = 0

    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        self.made += 1
        if self.made == 1:  # compiles the other variant
            row_max[x.shape[0],](x, out, x.shape[1], BLOCK=4096, num_warps=8, launch_pdl=True)
        ahead = self.made % 8 == 0
        row_max[x.shape[0],](x, out, x.shape[1], BLOCK=4096, num_warps=8, launch_pdl=ahead)
        return out
