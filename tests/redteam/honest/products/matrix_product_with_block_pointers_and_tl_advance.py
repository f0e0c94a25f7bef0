"""matrix product with block pointers and tl.advance

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x @ w


def get_inputs():
    return [torch.randn(256, 64), torch.randn(64, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    m, n = pid // grid_n, pid % grid_n
    a = tl.make_block_ptr(
        base=a_ptr, shape=(M, K), strides=(sam, sak), offsets=(m * BM, 0), block_shape=(BM, BK), order=(1, 0)
    )
    b = tl.make_block_ptr(
        base=b_ptr, shape=(K, N), strides=(sbk, sbn), offsets=(0, n * BN), block_shape=(BK, BN), order=(1, 0)
    )
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)), input_precision="ieee")
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(
        base=c_ptr, shape=(M, N), strides=(scm, scn), offsets=(m * BM, n * BN), block_shape=(BM, BN), order=(1, 0)
    )
    tl.store(c, acc, boundary_check=(0, 1))


class ModelNew(nn.Module):
    def forward(self, x, w):
        M, K = x.shape
        N = w.shape[1]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        grid = lambda META: (triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)
        matmul_kernel[grid](
            x,
            w,
            out,
            M,
            N,
            K,
            x.stride(0),
            x.stride(1),
            w.stride(0),
            w.stride(1),
            out.stride(0),
            out.stride(1),
            BM=16,
            BN=16,
            BK=32,
            GROUP=4,
        )
        return out
