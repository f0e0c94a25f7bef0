"""causal ReLU attention: qkv product, then fused attention reading the packed buffer by strides

expect: correct
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Causal self-attention with ReLU in the softmax's place"""

    def __init__(self, n_embd, n_head, max_seqlen):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen)).view(1, 1, max_seqlen, max_seqlen))
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.relu(att)
        y = att @ v
        return y.transpose(1, 2).contiguous().view(B, T, C)


def get_inputs():
    return [torch.randn(68, 16, 32)]


def get_init_inputs():
    return [32, 2, 64]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def qkv_kernel(x, w, b, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    xt = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
    wt = tl.load(w + n[:, None] * K + k[None, :], mask=n[:, None] < N, other=0.0)
    acc = tl.dot(xt, wt.T, input_precision="ieee") + tl.load(b + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def attend(qkv, o, T, C, H, scale, D: tl.constexpr, BT: tl.constexpr):
    bh = tl.program_id(0)
    b = bh // H
    h = bh % H
    t = tl.arange(0, BT)
    d = tl.arange(0, D)
    base = qkv + b * T * 3 * C + h * D
    m = t[:, None] < T
    q = tl.load(base + t[:, None] * 3 * C + d[None, :], mask=m, other=0.0)
    k = tl.load(base + C + t[:, None] * 3 * C + d[None, :], mask=m, other=0.0)
    v = tl.load(base + 2 * C + t[:, None] * 3 * C + d[None, :], mask=m, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    s = tl.where((t[:, None] >= t[None, :]) & (t[None, :] < T), tl.maximum(s, 0.0), 0.0)
    tl.store(o + (b * T + t[:, None]) * C + h * D + d[None, :], tl.dot(s, v, input_precision="ieee"), mask=m)


class ModelNew(nn.Module):
    def __init__(self, n_embd, n_head, max_seqlen):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen)).view(1, 1, max_seqlen, max_seqlen))
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        B, T, C = x.size()
        qkv = torch.empty(B, T, 3 * C, device=x.device, dtype=x.dtype)
        qkv_kernel[(triton.cdiv(B * T, 32), triton.cdiv(3 * C, 32))](
            x, self.c_attn.weight, self.c_attn.bias, qkv, B * T, 3 * C, C, BM=32, BN=32
        )
        out = torch.empty_like(x)
        D = C // self.n_head
        attend[(B * self.n_head,)](qkv, out, T, C, self.n_head, D**-0.5, D=D, BT=max(16, triton.next_power_of_2(T)))
        return out
