"""product of tokens with the weights of the expert that each chose, over tokens sorted by expert

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w, expert):
        return torch.einsum("mk,mkn->mn", x, w[expert])


def get_inputs():
    return [torch.randn(96, 32), torch.randn(4, 32, 40) * 0.2, torch.randint(0, 4, (96,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moe_kernel(X, W, E, O, M, N, K: tl.constexpr, experts, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, K)
    x = tl.load(X + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    chosen = tl.load(E + m, mask=m < M, other=-1)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for e in range(0, experts):
        here = chosen == e
        if tl.sum(here.to(tl.int32)) > 0:
            w = tl.load(W + e * K * N + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
            acc += tl.where(here[:, None], tl.dot(x, w, allow_tf32=False), 0.0)
    tl.store(O + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w, expert):
        M, K = x.shape
        N = w.shape[2]
        out = torch.empty((M, N), dtype=x.dtype, device=x.device)
        moe_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 32))](
            x, w, expert, out, M, N, K=K, experts=w.shape[0], BLOCK_M=16, BLOCK_N=32
        )
        return out
