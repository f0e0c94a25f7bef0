"""product with 4-bit weights, eight to an int32, unpacked by shifts, with group scales

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, packed, scale):
        shifts = torch.arange(0, 32, 4, dtype=torch.int32)
        w = ((packed[:, None, :] >> shifts[None, :, None]) & 15).reshape(-1, packed.shape[1]).float() - 8.0
        w = w * scale.repeat_interleave(32, dim=0)
        return x @ w


def get_inputs():
    return [
        torch.randn(70, 96),
        torch.randint(-(2**31), 2**31 - 1, (12, 64), dtype=torch.int64).to(torch.int32),
        torch.rand(3, 64) * 0.1,
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def int4_gemm_kernel(
    A, B, S, C, M, N, K, GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        offs_k = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(
            A + offs_m[:, None] * K + offs_k[None, :], mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0
        )
        inside = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        packed = tl.load(B + (offs_k[:, None] // 8) * N + offs_n[None, :], mask=inside, other=0)
        shift = (offs_k[:, None] % 8) * 4
        b = ((packed >> shift) & 0xF).to(tl.float32) - 8.0
        s = tl.load(S + (offs_k[:, None] // GROUP) * N + offs_n[None, :], mask=inside, other=0.0)
        acc += tl.dot(a, b * s, allow_tf32=False)
    tl.store(C + offs_m[:, None] * N + offs_n[None, :], acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, x, packed, scale):
        M, K = x.shape
        N = packed.shape[1]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        int4_gemm_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x, packed, scale, out, M, N, K, GROUP=32, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32
        )
        return out
