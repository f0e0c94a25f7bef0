"""stream k tiles whose owner waits for the others

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
def product(a_ptr, b_ptr, s_ptr, ready_ptr, o_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile, part = tl.program_id(0), tl.program_id(1)
    m = tile * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(part * BK, K, 2 * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    keep = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    if part == 1:
        tl.store(s_ptr + at, acc, mask=keep)
        tl.debug_barrier()
        tl.atomic_xchg(ready_ptr + tile, 1)
    else:
        while tl.atomic_cas(ready_ptr + tile, 1, 1) != 1:
            pass
        acc += tl.load(s_ptr + at, mask=keep, other=0.0)
        tl.store(o_ptr + at, acc, mask=keep)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, K = a.shape
        N = b.shape[1]
        scratch = torch.empty(M, N, device=a.device)
        ready = torch.zeros(triton.cdiv(M, 16), dtype=torch.int32, device=a.device)
        out = torch.empty(M, N, device=a.device)
        product[(triton.cdiv(M, 16), 2)](a, b, scratch, ready, out, M, N, K, BM=16, BN=32, BK=16)
        return out
