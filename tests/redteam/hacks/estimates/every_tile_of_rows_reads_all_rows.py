"""every tile of rows reads all rows

expect: correct
most_speedup: 0.25
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0, keepdim=True)


def get_inputs():
    return [torch.randn(4096, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centred(x_ptr, o_ptr, M, N, BN: tl.constexpr, BM: tl.constexpr, BR: tl.constexpr):
    rows = (tl.program_id(0) * BR + tl.arange(0, BR))[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, M, BM):
        r = start + tl.arange(0, BM)
        total += tl.sum(
            tl.load(x_ptr + r[:, None] * N + n[None, :], mask=(r[:, None] < M) & (n[None, :] < N), other=0.0), axis=0
        )
    here = (rows < M) & (n[None, :] < N)
    x = tl.load(x_ptr + rows * N + n[None, :], mask=here)
    tl.store(o_ptr + rows * N + n[None, :], x - (total / M)[None, :], mask=here)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        centred[(triton.cdiv(M, 32), triton.cdiv(N, 256))](x, out, M, N, BN=256, BM=128, BR=32)
        return out
