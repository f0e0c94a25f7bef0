"""partial sums that another configuration left are added

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(120, 1000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 128})], key=["N"])
@triton.jit
def part_kernel(X, P, N, PARTS, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    i = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=0.0)
    tl.store(P + row * PARTS + part, tl.sum(x, axis=0))


@triton.jit
def sum_kernel(P, O, PARTS, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(O + row, tl.sum(tl.load(P + row * PARTS + i, mask=i < parts, other=0.0), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        most = triton.cdiv(N, 128)
        out = torch.empty(M, device=x.device, dtype=x.dtype)
        partial = torch.zeros((M, most), device=x.device, dtype=x.dtype)
        part_kernel[lambda meta: (M, triton.cdiv(N, meta["BLOCK"]))](x, partial, N, most)
        sum_kernel[(M,)](partial, out, most, most, BLOCK=triton.next_power_of_2(most))
        return out
