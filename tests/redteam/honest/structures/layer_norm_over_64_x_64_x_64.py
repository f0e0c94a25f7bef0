"""layer norm over 64 x 64 x 64 of a batch of 16 (cannot be cut), two kernels

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.randn(16, 64, 64, 64)]


def get_init_inputs():
    return [(64, 64, 64)]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stats(x, mean, rstd, N, eps, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    s = tl.zeros((BLOCK,), tl.float32)
    q = tl.zeros((BLOCK,), tl.float32)
    for o in range(0, N, BLOCK):
        i = o + tl.arange(0, BLOCK)
        v = tl.load(x + r * N + i, mask=i < N, other=0.0)
        s += v
        q += v * v
    m = tl.sum(s, 0) / N
    tl.store(mean + r, m)
    tl.store(rstd + r, 1.0 / tl.sqrt(tl.sum(q, 0) / N - m * m + eps))


@triton.jit
def norm(x, mean, rstd, w, b, y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = (tl.load(x + r * N + i, mask=i < N) - tl.load(mean + r)) * tl.load(rstd + r)
    tl.store(y + r * N + i, v * tl.load(w + i, mask=i < N) + tl.load(b + i, mask=i < N), mask=i < N)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    def forward(self, x):
        R = x.shape[0]
        N = x[0].numel()
        mean = torch.empty(R, device=x.device)
        rstd = torch.empty(R, device=x.device)
        y = torch.empty_like(x)
        stats[(R,)](x, mean, rstd, N, self.ln.eps, BLOCK=4096)
        norm[(R, triton.cdiv(N, 4096))](x, mean, rstd, self.ln.weight, self.ln.bias, y, N, BLOCK=4096)
        return y
