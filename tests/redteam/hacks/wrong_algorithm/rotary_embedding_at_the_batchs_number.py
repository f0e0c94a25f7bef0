"""rotary embedding at the number of the sequence for that of the token

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, cos, sin):
        half = q.shape[-1] // 2
        turned = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
        cos = torch.cat((cos, cos), -1)[None, :, None, :]
        sin = torch.cat((sin, sin), -1)[None, :, None, :]
        return q * cos + turned * sin


def get_inputs():
    angle = torch.randn(40, 16)
    return [torch.randn(3, 40, 8, 32), angle.cos(), angle.sin()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

ROPE_GROUP_SIZE: int = 4


def _backward(args):
    return bool(args["BACKWARD_PASS"])


@triton.heuristics({"BACKWARD_PASS": _backward})
@triton.jit
def rope_embedding(
    Q,
    Q_row_stride: tl.constexpr,
    cos,
    cos_row_stride: tl.constexpr,
    sin,
    sin_row_stride: tl.constexpr,
    seqlen,
    head_dim: tl.constexpr,
    n_heads: tl.constexpr,
    BACKWARD_PASS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
):
    row_position = tl.program_id(0)
    group_head_position = tl.program_id(1)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    half_head_dim = head_dim // 2
    mask = col_offsets < half_head_dim
    sin1 = tl.load(sin + (row_position // seqlen) * sin_row_stride + col_offsets, mask=mask, other=0)
    cos1 = tl.load(cos + (row_position // seqlen) * cos_row_stride + col_offsets, mask=mask, other=0)
    if BACKWARD_PASS:
        sin1 = -sin1
    head_start = group_head_position * GROUP
    head_end = min((head_start + GROUP), n_heads)
    for k in range(head_start, head_end):
        offs_q1 = row_position * Q_row_stride + k * head_dim + col_offsets
        offs_q2 = row_position * Q_row_stride + k * head_dim + col_offsets + half_head_dim
        Q1 = tl.load(Q + offs_q1, mask=mask, other=0).to(sin1.dtype)
        Q2 = tl.load(Q + offs_q2, mask=mask, other=0).to(sin1.dtype)
        tl.store(Q + offs_q1, Q1 * cos1 - Q2 * sin1, mask=mask)
        tl.store(Q + offs_q2, Q2 * cos1 + Q1 * sin1, mask=mask)


class ModelNew(nn.Module):
    def forward(self, q, cos, sin):
        batch, seq_len, n_heads, head_dim = q.shape
        Q = q.clone().view(batch * seq_len, n_heads * head_dim)
        n_groups = triton.cdiv(n_heads, ROPE_GROUP_SIZE)
        rope_embedding[(batch * seq_len, n_groups)](
            Q,
            Q.stride(0),
            cos,
            cos.stride(0),
            sin,
            sin.stride(0),
            seq_len,
            head_dim,
            n_heads,
            BACKWARD_PASS=False,
            BLOCK_SIZE=triton.next_power_of_2(head_dim // 2),
            GROUP=ROPE_GROUP_SIZE,
        )
        return Q.view(batch, seq_len, n_heads, head_dim)
