"""softmax over the other axis of a square

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(24, 32, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel_non_inner(output_ptr, input_ptr, M, N, K, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_k = tl.program_id(1)
    k = pid_k * TILE_K + tl.arange(0, TILE_K)[None, :]
    n = tl.arange(0, TILE_N)[:, None]
    offset = pid_m * N * K + k * K + n
    mask = (n < N) & (k < K)
    inp = tl.load(input_ptr + offset, mask=mask, other=-float("inf"))
    m = tl.max(inp, 0)
    e = tl.exp(inp - m[None, :])
    z = tl.sum(e, axis=0)
    tl.store(output_ptr + offset, e / z, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N, K = x.shape
        out = torch.empty_like(x)
        softmax_kernel_non_inner[(M, triton.cdiv(K, 16), 1)](out, x, M, N, K, TILE_N=64, TILE_K=16)
        return out
