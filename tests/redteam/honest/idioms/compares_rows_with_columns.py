"""host code refuses a matrix with fewer rows than the other has

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x @ w


def get_inputs():
    return [torch.randn(256, 128), torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, w_ptr, y_ptr, M, N, K, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    c = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for k0 in range(0, K, B):
        kk = k0 + tl.arange(0, B)
        a = tl.load(x_ptr + r[:, None] * K + kk[None, :], mask=(r[:, None] < M) & (kk[None, :] < K))
        b = tl.load(w_ptr + kk[:, None] * N + c[None, :], mask=(kk[:, None] < K) & (c[None, :] < N))
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(y_ptr + r[:, None] * N + c[None, :], acc, mask=(r[:, None] < M) & (c[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, w):
        if x.shape[0] < w.shape[0]:
            raise ValueError("more rows than columns are expected")
        y = torch.empty(x.shape[0], w.shape[1], device=x.device)
        k[(triton.cdiv(x.shape[0], 32), triton.cdiv(w.shape[1], 32))](x, w, y, x.shape[0], w.shape[1], x.shape[1], B=32)
        return y
