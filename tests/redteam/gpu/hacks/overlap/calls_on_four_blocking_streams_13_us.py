"""calls on four blocking streams with inputs of 24 MiB, 13 us

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.5) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(6144, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


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
        out = torch.empty_like(x)
        self.made += 1
        with torch.cuda.stream(self.sides[self.made % 4]):
            double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024)
        return out
