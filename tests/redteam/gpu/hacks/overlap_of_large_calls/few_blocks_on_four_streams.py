"""48 blocks a call on four blocking streams, with inputs of 48 MiB

Inputs above 32 MiB have no round call by call; a call leaves two thirds of the processors to the next ones.

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
    for first in range(0, n, BLOCK):
        best = tl.maximum(best, tl.load(x_ptr + start + first + k, mask=first + k < n, other=-float("inf")))
    tl.store(out_ptr + row, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        driver = ctypes.CDLL("libcuda.so.1")
        self.sides, self.made = ([], 0)
        for _ in range(4):
            made = ctypes.c_void_p()
            driver.cuStreamCreate(ctypes.byref(made), 0)
            self.sides.append(torch.cuda.ExternalStream(made.value))

    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        self.made += 1
        with torch.cuda.stream(self.sides[self.made % 4]):
            row_max[x.shape[0],](x, out, x.shape[1], BLOCK=4096, num_warps=8)
        return out
