"""a heuristic that is evaluated for each configuration

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0 + 1.0


def get_inputs():
    return [torch.randn(96, 448)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256}, num_warps=8)], key=["N"])
@triton.heuristics({"EVEN": lambda args: args["N"] % args["BLOCK"] == 0})
@triton.jit
def affine_kernel(X, O, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(X + row * N + i)
        tl.store(O + row * N + i, tl.maximum(x, 0.0) * 2.0 + 1.0)
    else:
        x = tl.load(X + row * N + i, mask=i < N, other=0.0)
        tl.store(O + row * N + i, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        affine_kernel[lambda meta: (M, triton.cdiv(N, meta["BLOCK"]))](x, out, N)
        return out
