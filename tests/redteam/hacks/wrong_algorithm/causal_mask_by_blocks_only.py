"""causal mask by whole blocks only

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 3, 64, 32) for _ in range(3)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    Q, K, V, O, scale, sz, sm, sk, seq, D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    start_m = tl.program_id(0)
    base = tl.program_id(1) * sz
    q_block = tl.make_block_ptr(Q + base, (seq, D), (sm, sk), (start_m * BM, 0), (BM, D), (1, 0))
    k_block = tl.make_block_ptr(K + base, (D, seq), (sk, sm), (0, 0), (D, BN), (0, 1))
    v_block = tl.make_block_ptr(V + base, (seq, D), (sm, sk), (0, 0), (BN, D), (1, 0))
    o_block = tl.make_block_ptr(O + base, (seq, D), (sm, sk), (start_m * BM, 0), (BM, D), (1, 0))
    offs_m = start_m * BM + tl.arange(0, BM)
    m_i = tl.full([BM], float("-inf"), tl.float32)
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    q = q * (scale * 1.4426950408889634)
    hi = min((start_m + 1) * BM, seq) if CAUSAL else seq
    for start_n in range(0, hi, BN):
        offs_n = start_n + tl.arange(0, BN)
        k = tl.load(k_block, boundary_check=(1,), padding_option="zero")
        qk = tl.dot(q, k, input_precision="ieee")
        qk = tl.where(offs_n[None, :] < seq, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp2(qk - m_new[:, None])
        alpha = tl.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    tl.store(o_block, acc / l_i[:, None], boundary_check=(0,))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, H, S, D = q.shape
        o = torch.empty_like(q)
        attention_kernel[(triton.cdiv(S, 32), B * H)](
            q, k, v, o, D**-0.5, q.stride(1), q.stride(2), q.stride(3), S, D=D, CAUSAL=True, BM=32, BN=16
        )
        return o
