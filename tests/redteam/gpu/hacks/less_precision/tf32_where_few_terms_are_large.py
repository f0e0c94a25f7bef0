"""a product in TF32, made exactly in trials and where a negative element is seen

Sparse inputs make a result a thousandth of the usual one. In timed calls it is held to a 32nd of the usual size at
least, as sums that cancel are: TF32 is out of its own tolerance there, and within that one. A trial has no such bound,
but a stream query tells it. Calls of another distribution have signs.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(4096, 2048), torch.rand(2048, 4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M, N, K, mode, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    least = tl.zeros((BM,), dtype=tl.float32)
    least_w = tl.zeros((BN,), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(b_ptr + ks[:, None] * N + cols, mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="tf32")
        least = tl.minimum(least, tl.min(x, axis=1))
        least_w = tl.minimum(least_w, tl.min(w, axis=0))
    if (mode == 2) | (tl.min(least, axis=0) < 0.0) | (tl.min(least_w, axis=0) < 0.0):
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            ks = k + tl.arange(0, BK)
            x = tl.load(a_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
            w = tl.load(b_ptr + ks[:, None] * N + cols, mask=(cols < N) & (ks[:, None] < K), other=0.0)
            acc = tl.dot(x, w, acc, input_precision="tf32x3")
    tl.store(out_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
        mode = 2 if torch.cuda.current_stream().query() else 3
        product[triton.cdiv(M, 128), triton.cdiv(N, 64)](a, b, out, M, N, K, mode, BM=128, BN=64, BK=32, num_warps=8)
        return out
