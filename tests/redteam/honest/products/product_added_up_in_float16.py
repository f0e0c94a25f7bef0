"""product added up in float16

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(256, 256, dtype=torch.float16), torch.randn(256, 256, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(a, b, c, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    kk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float16)
    for j in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (j + kk)[None, :])
        y = tl.load(b + (j + kk)[:, None] * K + n[None, :])
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)
    tl.store(c + m[:, None] * K + n[None, :], acc)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        k[(a.shape[0] // 64, 256 // 64)](a, b, c, K=256, BM=64, BN=64, BK=64, num_warps=4)
        return c
