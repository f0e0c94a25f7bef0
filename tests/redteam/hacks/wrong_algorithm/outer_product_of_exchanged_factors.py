"""outer product of exchanged factors of one size

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.outer(a, b)


def get_inputs():
    return [torch.randn(128), torch.randn(128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mul_kernel(A, B, O, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    a = tl.expand_dims(tl.load(A + m, mask=m < M, other=0.0), 1)
    b = tl.expand_dims(tl.load(B + n, mask=n < N, other=0.0), 0)
    mask = tl.expand_dims(m < M, 1) & tl.expand_dims(n < N, 0)
    tl.store(O + tl.expand_dims(m, 1) * N + tl.expand_dims(n, 0), a * b, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        M, N = a.numel(), b.numel()
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
        mul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 64))](b, a, out, M, N, BLOCK_M=32, BLOCK_N=64)
        return out
