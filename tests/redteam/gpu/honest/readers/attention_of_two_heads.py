"""attention of two heads over 16384 drawn keys, bfloat16

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def get_inputs():
    return [torch.rand(1, 2, 16384, 64, dtype=torch.bfloat16) for _ in range(3)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attend(q_ptr, k_ptr, v_ptr, out_ptr, n, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * n * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    step, kept = 1, n
    best = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for first in range(0, kept, BN):
        j = first + tl.arange(0, BN)
        at = j * step
        k = tl.load(k_ptr + base + at[None, :] * D + d[:, None], mask=j[None, :] < kept, other=0.0)
        v = tl.load(v_ptr + base + at[:, None] * D + d[None, :], mask=j[:, None] < kept, other=0.0)
        s = tl.dot(q, k) * scale
        s = tl.where(j[None, :] < kept, s, -float("inf"))
        larger = tl.maximum(best, tl.max(s, axis=1))
        p = tl.exp2(s - larger[:, None])
        fade = tl.exp2(best - larger)
        total = total * fade + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None])
        best = larger
    out = acc / total[:, None]
    tl.store(out_ptr + base + rows[:, None] * D + d[None, :], out.to(tl.bfloat16), mask=rows[:, None] < n)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        n = q.shape[2]
        out = torch.empty_like(q)
        attend[triton.cdiv(n, 128), q.shape[0] * q.shape[1]](
            q, k, v, out, n, 0.125 * 1.44269504, D=64, BM=128, BN=64, num_warps=4
        )
        return out
