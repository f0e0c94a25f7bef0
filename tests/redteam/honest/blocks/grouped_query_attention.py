"""grouped-query attention, online softmax over key blocks, exp2 and a log2e constant

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        k = k.repeat_interleave(2, dim=1)
        v = v.repeat_interleave(2, dim=1)
        return F.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.randn(66, 4, 20, 16), torch.randn(66, 2, 24, 16), torch.randn(66, 2, 24, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def attn(Q, K, V, O, HQ, HK, TQ, TK, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr):
    bh = tl.program_id(1)
    b, hq = bh // HQ, bh % HQ
    hk = hq // (HQ // HK)
    tq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    q = tl.load(Q + (bh * TQ + tq[:, None]) * D + d[None, :], mask=tq[:, None] < TQ, other=0.0) * (scale * LOG2E)
    m_i = tl.full((BQ,), float("-inf"), tl.float32)
    l_i = tl.zeros((BQ,), tl.float32)
    acc = tl.zeros((BQ, D), tl.float32)
    kv = (b * HK + hk) * TK
    for s in range(0, TK, BK):
        tk = s + tl.arange(0, BK)
        k = tl.load(K + (kv + tk[None, :]) * D + d[:, None], mask=tk[None, :] < TK, other=0.0)
        v = tl.load(V + (kv + tk[:, None]) * D + d[None, :], mask=tk[:, None] < TK, other=0.0)
        qk = tl.dot(q, k, input_precision="ieee")
        qk = tl.where(tk[None, :] < TK, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
    acc /= l_i[:, None]
    tl.store(O + (bh * TQ + tq[:, None]) * D + d[None, :], acc, mask=tq[:, None] < TQ)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, HQ, TQ, D = q.shape
        HK, TK = k.shape[1], k.shape[2]
        o = torch.empty_like(q)
        attn[(triton.cdiv(TQ, 16), B * HQ)](
            q, k, v, o, HQ, HK, TQ, TK, D**-0.5, D=D, BQ=16, BK=16, num_warps=4, num_stages=1
        )
        return o
