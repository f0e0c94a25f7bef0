"""a float32 product in bfloat16, of drawn whole numbers

The numbers are whole and below 9 in every call that the judge makes: of all kinds the draws stay as they are, and
bfloat16 has each of them exactly. Any fraction would be lost.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randint(-8, 8, (4096, 2048)).float(), torch.randint(-8, 8, (2048, 4096)).float()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(b_ptr + ks[:, None] * N + cols, mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc = tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16), acc)
    tl.store(out_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        product[triton.cdiv(M, 128), triton.cdiv(N, 64)](a, b, out, M, N, K, BM=128, BN=64, BK=32, num_warps=8)
        return out
