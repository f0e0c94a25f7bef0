"""two-dimensional grid with strides

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_2d(x_ptr, y_ptr, M, N, sxm, sxn, sym, syn, BM: tl.constexpr, BN: tl.constexpr):
    pid_m, pid_n = tl.program_id(axis=0), tl.program_id(axis=1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    x = tl.load(x_ptr + rm[:, None] * sxm + rn[None, :] * sxn, mask=mask, other=0)
    y = tl.where(x > 0, x, 0.0) * 2.0 + 1.0
    tl.store(y_ptr + rm[:, None] * sym + rn[None, :] * syn, y, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        affine_2d[(triton.cdiv(M, 16), triton.cdiv(N, 32))](
            x, y, M, N, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BM=16, BN=32, num_warps=4
        )
        return y
