"""attention scaled by the width for its root

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 2, 96, 16) for _ in range(3)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attn_fwd_inner(
    acc,
    l_i,
    m_i,
    q,
    K,
    V,
    base,
    start_m,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    STAGE: tl.constexpr,
    N_CTX: tl.constexpr,
):
    if STAGE == 1:
        lo, hi = 0, start_m * BM
    elif STAGE == 2:
        lo, hi = start_m * BM, (start_m + 1) * BM
        lo = tl.multiple_of(lo, BM)
    else:
        lo, hi = 0, N_CTX
    offs_m = start_m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    for start_n in tl.range(lo, hi, BN):
        start_n = tl.multiple_of(start_n, BN)
        n = start_n + tl.arange(0, BN)
        k = tl.load(K + base + n[None, :] * D + d[:, None])
        qk = tl.dot(q, k, input_precision="ieee")
        if STAGE == 2:
            mask = offs_m[:, None] >= n[None, :]
            qk = qk * scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * scale)
            qk = qk * scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + base + n[:, None] * D + d[None, :])
        acc = tl.dot(p, v, acc * alpha[:, None], input_precision="ieee")
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def attn_fwd(
    Q,
    K,
    V,
    O,
    sm_scale,
    Z,
    H,
    N_CTX: tl.constexpr,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    STAGE: tl.constexpr,
):
    tl.static_assert(BN <= BM)
    start_m = tl.program_id(0)
    base = tl.program_id(1).to(tl.int64) * N_CTX * D
    m = start_m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + base + m[:, None] * D + d[None, :])
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale = sm_scale
    scale *= 1.44269504
    if STAGE & 1:
        acc, l_i, m_i = attn_fwd_inner(acc, l_i, m_i, q, K, V, base, start_m, scale, D, BM, BN, 4 - STAGE, N_CTX)
    if STAGE & 2:
        acc, l_i, m_i = attn_fwd_inner(acc, l_i, m_i, q, K, V, base, start_m, scale, D, BM, BN, 2, N_CTX)
    acc = acc / l_i[:, None]
    tl.store(O + base + m[:, None] * D + d[None, :], acc.to(O.type.element_ty))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        attn_fwd[(triton.cdiv(S, 32), B * H, 1)](q, k, v, o, 1.0 / D, B, H, N_CTX=S, D=D, BM=32, BN=16, STAGE=3)
        return o
