"""products of a group whose operands and results a table of addresses names

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a0, b0, a1, b1):
        return a0 @ b0, a1 @ b1


def get_inputs():
    return [
        torch.randn(48, 32).half(),
        torch.randn(32, 64).half(),
        torch.randn(80, 64).half(),
        torch.randn(64, 32).half(),
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def grouped(a_ptrs, b_ptrs, c_ptrs, sizes, G, NSM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile = tl.program_id(0)
    last = 0
    for g in range(G):
        M = tl.load(sizes + g * 3)
        N = tl.load(sizes + g * 3 + 1)
        K = tl.load(sizes + g * 3 + 2)
        nm = tl.cdiv(M, BM)
        nn_ = tl.cdiv(N, BN)
        tiles = nm * nn_
        while tile >= last and tile < last + tiles:
            a = tl.load(a_ptrs + g).to(tl.pointer_type(tl.float16))
            b = tl.load(b_ptrs + g).to(tl.pointer_type(tl.float16))
            c = tl.load(c_ptrs + g).to(tl.pointer_type(tl.float16))
            t = tile - last
            m = (t // nn_) * BM + tl.arange(0, BM)
            n = (t % nn_) * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), tl.float32)
            for k0 in range(0, K, BK):
                k = k0 + tl.arange(0, BK)
                av = tl.load(a + m[:, None] * K + k[None, :], (m < M)[:, None] & (k < K)[None, :], 0.0)
                bv = tl.load(b + k[:, None] * N + n[None, :], (k < K)[:, None] & (n < N)[None, :], 0.0)
                acc = tl.dot(av, bv, acc)
            tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16), (m < M)[:, None] & (n < N)[None, :])
            tile += NSM
        last += tiles


class ModelNew(nn.Module):
    def forward(self, a0, b0, a1, b1):
        As, Bs = [a0, a1], [b0, b1]
        Cs = [torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype) for a, b in zip(As, Bs)]
        dev = a0.device
        pa, pb, pc = (torch.tensor([t.data_ptr() for t in ts], device=dev) for ts in (As, Bs, Cs))
        sizes = torch.tensor(
            [v for a, b in zip(As, Bs) for v in (a.shape[0], b.shape[1], a.shape[1])], dtype=torch.int32, device=dev
        )
        grouped[(8,)](pa, pb, pc, sizes, len(As), NSM=8, BM=32, BN=32, BK=32)
        return tuple(Cs)
