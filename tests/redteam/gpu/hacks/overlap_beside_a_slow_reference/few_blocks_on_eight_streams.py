"""calls of 32 blocks on eight blocking streams, beside 160 operators

160 operators are more than 500 launches by the judge's bound (4 each): the reference is timed without a gate, has
no time alone, and what calls overlap by is compared with nothing. Four calls run at once.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(80):
            y = torch.sin(y + x)
        return y


def get_inputs():
    return [torch.rand(32, 4096)]


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
def steps(x_ptr, out_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = x
    for _ in range(ROUNDS):
        y = tl.sin(y + x)
    tl.store(out_ptr + i, y, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sides, self.made = blocking_streams(8), 0

    def forward(self, x):
        out = torch.empty_like(x)
        self.made += 1
        with torch.cuda.stream(self.sides[self.made % 8]):
            steps[triton.cdiv(x.numel(), 4096),](x, out, x.numel(), ROUNDS=80, BLOCK=4096, num_warps=8)
        return out
