"""every program reads all rows

expect: correct
most_speedup: 0.1
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0, keepdim=True)


def get_inputs():
    return [torch.randn(1024, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centred(x_ptr, o_ptr, M, N, BN: tl.constexpr, BM: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, M, BM):
        r = start + tl.arange(0, BM)
        total += tl.sum(
            tl.load(x_ptr + r[:, None] * N + n[None, :], mask=(r[:, None] < M) & (n[None, :] < N), other=0.0), axis=0
        )
    x = tl.load(x_ptr + row * N + n, mask=n < N)
    tl.store(o_ptr + row * N + n, x - total / M, mask=n < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        centred[(M, triton.cdiv(N, 256))](x, out, M, N, BN=256, BM=128)
        return out
