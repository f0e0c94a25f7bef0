"""lower triangle without its own diagonal

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(x, diagonal=3)


def get_inputs():
    return [torch.randn(20, 60, 70)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tril_batch_kernel(X, Y, M, N, diagonal, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    batch = tl.program_id(0)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    for n_offset in range(0, N, BLOCK_N):
        col = n_offset + tl.arange(0, BLOCK_N)[None, :]
        mask = (row < M) & (col < N)
        x = tl.load(X + batch * M * N + row * N + col, mask, other=0.0)
        y = tl.where(row + diagonal > col, x, 0.0)
        tl.store(Y + batch * M * N + row * N + col, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        B, M, N = x.shape
        out = torch.empty_like(x)
        tril_batch_kernel[(B, triton.cdiv(M, 16))](x, out, M, N, 3, BLOCK_M=16, BLOCK_N=32)
        return out
