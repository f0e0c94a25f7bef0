"""attention over key blocks that an index lists for each query block

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v, blocks):
        s = q @ k.transpose(1, 2) * 0.25
        allowed = torch.zeros(q.shape[0], q.shape[1] // 16, k.shape[1] // 16, dtype=torch.bool)
        allowed.scatter_(2, blocks, True)
        mask = allowed.repeat_interleave(16, 1).repeat_interleave(16, 2)
        return torch.softmax(s.masked_fill(~mask, float("-inf")), -1) @ v


def get_inputs():
    q, k, v = (torch.randn(6, 64, 16) for _ in range(3))
    blocks = torch.rand(6, 4, 4).argsort(dim=-1)[..., :2].contiguous()
    return [q, k, v, blocks]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sparse_attention_kernel(Q, K, V, Blocks, O, S, scale, NB: tl.constexpr, BM: tl.constexpr, D: tl.constexpr):
    start_m = tl.program_id(0)
    b = tl.program_id(1)
    m = start_m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + b * S * D + m[:, None] * D + d[None, :])
    m_i = tl.full([BM], -float("inf"), tl.float32)
    l_i = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for i in range(NB):
        block = tl.load(Blocks + (b * (S // BM) + start_m) * NB + i).to(tl.int32)
        n = block * BM + tl.arange(0, BM)
        k = tl.load(K + b * S * D + n[None, :] * D + d[:, None])
        v = tl.load(V + b * S * D + n[:, None] * D + d[None, :])
        s = tl.dot(q, k, allow_tf32=False) * scale
        m_new = tl.maximum(m_i, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m_i - m_new)
        acc = acc * alpha[:, None] + tl.dot(p, v, allow_tf32=False)
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_new
    tl.store(O + b * S * D + m[:, None] * D + d[None, :], acc / l_i[:, None])


class ModelNew(nn.Module):
    def forward(self, q, k, v, blocks):
        B, S, D = q.shape
        o = torch.empty_like(q)
        sparse_attention_kernel[(S // 16, B)](q, k, v, blocks, o, S, 0.25, NB=blocks.shape[2], BM=16, D=D)
        return o
