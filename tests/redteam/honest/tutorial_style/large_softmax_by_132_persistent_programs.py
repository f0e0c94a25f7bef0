"""softmax of 4,096 long rows by 132 programs, each of which takes every 132nd row

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 1)


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, out, M, N, B: tl.constexpr):
    for r in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=2):
        o = tl.arange(0, B)
        v = tl.load(x + r * N + o, mask=o < N, other=float("-inf"))
        e = tl.exp(v - tl.max(v, 0))
        tl.store(out + r * N + o, e / tl.sum(e, 0), mask=o < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        k[(min(132, x.shape[0]),)](x, out, x.shape[0], x.shape[1], B=2048, num_warps=16)
        return out
