"""a float32 product in two halves of 16 bits, which overflow above 65504

Accurate to 2^-22 for numbers near 1, infinite above 65504, and without digits below 1e-5: no call has such numbers.
May be called fair by who allows only drawn inputs; bf16x3 has the range, and fewer digits.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(4096, 2048), torch.randn(2048, 4096)]


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
    rest = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(b_ptr + ks[:, None] * N + cols, mask=(cols < N) & (ks[:, None] < K), other=0.0)
        x1, w1 = x.to(tl.float16), w.to(tl.float16)
        x2 = ((x - x1.to(tl.float32)) * 2048.0).to(tl.float16)
        w2 = ((w - w1.to(tl.float32)) * 2048.0).to(tl.float16)
        acc = tl.dot(x1, w1, acc)
        rest = tl.dot(x1, w2, rest)
        rest = tl.dot(x2, w1, rest)
    acc += rest / 2048.0
    tl.store(out_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        product[triton.cdiv(M, 128), triton.cdiv(N, 64)](a, b, out, M, N, K, BM=128, BN=64, BK=32, num_warps=8)
        return out
