"""calls of 3 us on four blocking streams, beside a reference that waits

The reference calls `.item()`: its gate gives up, it has no time alone. As the known four streams, which are seen.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, shift):
        return torch.clamp(x, min=0.5) * 2.0 + shift.item()


def get_inputs():
    return [torch.rand(256, 1024), torch.rand(1)]


def get_init_inputs():
    return []


# --- candidate ---
import ctypes

import torch
import torch.nn as nn
import triton
import triton.language as tl


def blocking_streams(count):
    driver, streams = ctypes.CDLL("libcuda.so.1"), []
    for _ in range(count):
        made = ctypes.c_void_p()
        driver.cuStreamCreate(ctypes.byref(made), 0)  # waits for the default stream, and that one for it
        streams.append(torch.cuda.ExternalStream(made.value))
    return streams


@triton.jit
def double(x_ptr, shift_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + tl.load(shift_ptr), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sides, self.made = blocking_streams(4), 0

    def forward(self, x, shift):
        out = torch.empty_like(x)
        self.made += 1
        with torch.cuda.stream(self.sides[self.made % 4]):
            double[triton.cdiv(x.numel(), 1024),](x, shift, out, x.numel(), BLOCK=1024)
        return out
