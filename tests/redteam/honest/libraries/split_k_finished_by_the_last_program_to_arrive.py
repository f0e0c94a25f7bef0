"""split k finished by the last program to arrive

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr,
    b_ptr,
    s_ptr,
    count_ptr,
    o_ptr,
    M,
    N,
    K,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    tile, part = tl.program_id(0), tl.program_id(1)
    m = tile * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(part * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    keep = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    tl.store(s_ptr + part * M * N + at, acc, mask=keep)
    tl.debug_barrier()
    if tl.atomic_add(count_ptr + tile, 1) == SPLIT - 1:
        total = tl.zeros([BM, BN], tl.float32)
        for p in range(SPLIT):
            total += tl.load(s_ptr + p * M * N + at, mask=keep, other=0.0)
        tl.store(o_ptr + at, total, mask=keep)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        scratch = torch.empty(4, M, N, device=a.device)
        count = torch.zeros(triton.cdiv(M, 16), dtype=torch.int32, device=a.device)
        out = torch.empty(M, N, device=a.device)
        product[(triton.cdiv(M, 16), 4)](a, b, scratch, count, out, M, N, K, SPLIT=4, BM=16, BN=32, BK=16)
        return out
