"""a bfloat16 product of positive matrices

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b.t()


def get_inputs():
    return [torch.rand(4096, 8192, dtype=torch.bfloat16), torch.rand(4096, 8192, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    turn = tl.program_id(0)  # eight rows of blocks after each other: their inputs stay in the cache
    across = N // BN
    group = turn // (8 * across)
    inside = turn % (8 * across)
    rows = (group * 8 + inside % 8) * BM + tl.arange(0, BM)[:, None]
    cols = (inside // 8) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows * K + ks[None, :])
        w = tl.load(b_ptr + cols * K + ks[:, None])
        acc = tl.dot(x, w, acc)
    tl.store(out_ptr + rows * N + cols, acc.to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[0]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        product[(M // 128) * (N // 256),](a, b, out, M, N, K, BM=128, BN=256, BK=64, num_warps=8, num_stages=3)
        return out
