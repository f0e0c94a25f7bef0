"""a product of weights is made in each call before the inputs arrive

Made anew in each call, of the present weights: right after a step of training too, and right without the judge's
gate. But all of it is done on a side stream while the gate is closed, and only the small product is timed.
In eight launches: a kernel of more than 3.3 times a call alone would be an `unjoined_stream`.

expect: incorrect or rejected or correct
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
def product(
    a_ptr, b_ptr, out_ptr, M, N, K, first, BENDS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = first + tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
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
        self.side = torch.cuda.Stream()

    def forward(self, x):
        M, K = x.shape
        N = self.b.shape[1]
        with torch.cuda.stream(self.side):
            merged = torch.empty((K, N), device=x.device, dtype=x.dtype)
            for first in range(0, N, N // 8):  # no kernel may take longer than three calls alone
                product[K // 64, N // 512](
                    self.a, self.b, merged, K, N, self.a.shape[1], first, BENDS=True, BM=64, BN=64, BK=64, num_warps=4
                )
        torch.cuda.current_stream().wait_stream(self.side)
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        product[triton.cdiv(M, 64), N // 32](x, merged, out, M, N, K, 0, BENDS=False, BM=64, BN=32, BK=64, num_warps=4)
        return out
