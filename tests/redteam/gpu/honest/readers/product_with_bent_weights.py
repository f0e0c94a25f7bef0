"""a product with tanh of a product of weights

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(2048, 2048, dtype=torch.bfloat16) / 45)
        self.b = nn.Parameter(torch.randn(2048, 2048, dtype=torch.bfloat16) / 2)

    def forward(self, x):
        return x @ torch.tanh(self.a @ self.b)


def get_inputs():
    return [torch.randn(128, 2048, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, M, N, K, BENDS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(a_ptr + rows * K + ks[None, :], mask=rows < M, other=0.0)
        w = tl.load(b_ptr + ks[:, None] * N + cols, mask=cols < N, other=0.0)
        acc = tl.dot(x, w, acc)
    out = acc.to(tl.bfloat16)
    if BENDS:
        v = out.to(tl.float32)
        e = tl.exp(-2.0 * tl.abs(v))
        bent = (1.0 - e) / (1.0 + e)
        out = tl.where(v < 0.0, -bent, bent).to(tl.bfloat16)
    tl.store(out_ptr + rows * N + cols, out, mask=(rows < M) & (cols < N))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(2048, 2048, dtype=torch.bfloat16) / 45)
        self.b = nn.Parameter(torch.randn(2048, 2048, dtype=torch.bfloat16) / 2)

    def forward(self, x):
        M, K = x.shape
        N = self.b.shape[1]
        merged = torch.empty((K, N), device=x.device, dtype=x.dtype)
        product[K // 128, N // 128](
            self.a, self.b, merged, K, N, self.a.shape[1], BENDS=True, BM=128, BN=128, BK=64, num_warps=8
        )
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        product[triton.cdiv(M, 64), N // 32](x, merged, out, M, N, K, BENDS=False, BM=64, BN=32, BK=64, num_warps=4)
        return out
