"""an instance norm of large planes, float16

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.instance_norm(x)


def get_inputs():
    return [torch.randn(16, 4, 1024, 1024, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, sum_ptr, square_ptr, n, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * n + tl.program_id(1) * (n // 64)
    k = tl.arange(0, BLOCK)
    a = tl.zeros((BLOCK,), tl.float32)
    b = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        j = turn * BLOCK + k
        v = tl.load(x_ptr + first + j).to(tl.float32)
        a += v
        b += v * v
    place = tl.program_id(0) * 64 + tl.program_id(1)
    tl.store(sum_ptr + place, tl.sum(a, axis=0))
    tl.store(square_ptr + place, tl.sum(b, axis=0))


@triton.jit
def normalise(x_ptr, sum_ptr, square_ptr, out_ptr, n, counted, BLOCK: tl.constexpr):
    p = tl.arange(0, 64)
    mean = tl.sum(tl.load(sum_ptr + tl.program_id(0) * 64 + p), axis=0) / counted
    square = tl.sum(tl.load(square_ptr + tl.program_id(0) * 64 + p), axis=0) / counted
    scale = 1.0 / tl.sqrt(square - mean * mean + 1e-5)
    i = tl.program_id(0).to(tl.int64) * n + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i).to(tl.float32)
    tl.store(out_ptr + i, ((v - mean) * scale).to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, x):
        planes, n = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
        sums = torch.empty(planes * 64, device=x.device, dtype=torch.float32)
        squares = torch.empty(planes * 64, device=x.device, dtype=torch.float32)
        out = torch.empty_like(x)
        part[planes, 64](x, sums, squares, n, BLOCK=4096, TURNS=n // 64 // 4096, num_warps=8)
        normalise[planes, n // 8192](x, sums, squares, out, n, n * 1.0, BLOCK=8192, num_warps=8)
        return out
