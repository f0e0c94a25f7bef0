"""gemm then a separate elementwise launch over the scratch in place

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Gemm, Swish, divide, clamp, tanh, clamp"""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        x = self.gemm(x)
        x = x * torch.sigmoid(x)
        x = x / 2.0
        x = torch.clamp(x, min=-1.0, max=1.0)
        x = torch.tanh(x)
        x = torch.clamp(x, min=-1.0, max=1.0)
        return x


batch_size = 128
in_features = 160
out_features = 96


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def linear(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k0 in tl.range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0.0)
        w = tl.load(w_ptr + n[:, None] * K + k[None, :], (n[:, None] < N) & (k[None, :] < K), 0.0)
        acc += tl.dot(x, tl.trans(w), allow_tf32=False)
    acc += tl.load(b_ptr + n, n < N, 0.0)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, (m[:, None] < M) & (n[None, :] < N))


@triton.jit
def epilogue_(y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + i, mask=i < n)
    y = y / (1.0 + tl.exp(-y)) / 2.0
    y = tl.clamp(y, -1.0, 1.0)
    y = 2.0 * tl.sigmoid(2.0 * y) - 1.0
    tl.store(y_ptr + i, y, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super(ModelNew, self).__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        x = x.contiguous()
        M, K = x.size()
        N = self.gemm.out_features
        y = x.new_empty(M, N)
        linear[(triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))](
            x, self.gemm.weight, self.gemm.bias, y, M, N, K, BM=BLOCK, BN=BLOCK, BK=BLOCK
        )
        epilogue_[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
        return y
