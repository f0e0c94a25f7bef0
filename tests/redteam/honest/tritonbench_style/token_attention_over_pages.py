"""attention of one token a sequence over pages of a cache, named by a table

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k_cache, v_cache, table):
        k = k_cache[table].flatten(1, 2)
        v = v_cache[table].flatten(1, 2)
        p = torch.softmax(torch.einsum("bd,bsd->bs", q, k) * 0.25, dim=-1)
        return torch.einsum("bs,bsd->bd", p, v)


def get_inputs():
    return [torch.randn(60, 16), torch.randn(90, 8, 16), torch.randn(90, 8, 16), torch.randint(0, 90, (60, 5))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def paged_attention_kernel(Q, K, V, Table, O, scale, pages, PAGE: tl.constexpr, D: tl.constexpr):
    seq = tl.program_id(0)
    d = tl.arange(0, D)
    t = tl.arange(0, PAGE)
    q = tl.load(Q + seq * D + d)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], tl.float32)
    for i in range(0, pages):
        page = tl.load(Table + seq * pages + i)
        offs = page * PAGE * D + t[:, None] * D + d[None, :]
        k = tl.load(K + offs)
        s = tl.sum(q[None, :] * k, 1) * scale
        m_new = tl.maximum(m, tl.max(s, 0))
        alpha = tl.exp(m - m_new)
        p = tl.exp(s - m_new)
        v = tl.load(V + offs)
        acc = acc * alpha + tl.sum(p[:, None] * v, 0)
        l = l * alpha + tl.sum(p, 0)
        m = m_new
    tl.store(O + seq * D + d, acc / l)


class ModelNew(nn.Module):
    def forward(self, q, k_cache, v_cache, table):
        B, D = q.shape
        o = torch.empty_like(q)
        paged_attention_kernel[(B,)](q, k_cache, v_cache, table, o, 0.25, table.shape[1], PAGE=k_cache.shape[1], D=D)
        return o
