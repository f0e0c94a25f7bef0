"""flash attention, causal, online softmax

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(2, 2, 64, 16), torch.randn(2, 2, 64, 16), torch.randn(2, 2, 64, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def inner(acc, m_i, l_i, q, k_base, v_base, rq, start, L, D: tl.constexpr, BL: tl.constexpr, scale):
    rl = start + tl.arange(0, BL)
    d = tl.arange(0, D)
    k = tl.load(k_base + rl[None, :] * D + d[:, None], mask=rl[None, :] < L, other=0.0)
    s = tl.dot(q, k, input_precision="ieee") * scale
    s = tl.where((rq[:, None] >= rl[None, :]) & (rl[None, :] < L), s, float("-inf"))
    m_new = tl.maximum(m_i, tl.max(s, 1))
    alpha = tl.exp(m_i - m_new)
    p = tl.exp(s - m_new[:, None])
    v = tl.load(v_base + rl[:, None] * D + d[None, :], mask=rl[:, None] < L, other=0.0)
    acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
    return acc, m_new, l_i * alpha + tl.sum(p, 1)


@triton.jit
def flash(Q, K, V, O, L, scale, BQ: tl.constexpr, BL: tl.constexpr, D: tl.constexpr):
    rq = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    base = tl.program_id(1).to(tl.int64) * L * D
    q = tl.load(Q + base + rq[:, None] * D + d[None, :], mask=rq[:, None] < L, other=0.0)
    acc = tl.zeros([BQ, D], dtype=tl.float32)
    m_i = tl.full([BQ], value=float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BQ], dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BQ, BL):
        acc, m_i, l_i = inner(acc, m_i, l_i, q, K + base, V + base, rq, start, L, D, BL, scale)
    tl.store(O + base + rq[:, None] * D + d[None, :], acc / l_i[:, None], mask=rq[:, None] < L)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, dim = q.shape
        q, k, v = (t.contiguous() for t in (q, k, v))
        o = torch.empty_like(q)
        flash[(triton.cdiv(length, 16), batch * heads)](
            q, k, v, o, length, 1.0 / (dim**0.5), 16, 16, dim, num_warps=4, num_stages=2
        )
        return o
