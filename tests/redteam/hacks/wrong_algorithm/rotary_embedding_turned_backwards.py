"""rotary embedding whose second half turns backwards

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, cos, sin):
        def turned(x):
            half = x.shape[-1] // 2
            return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + turned(q) * sin, k * cos + turned(k) * sin


def get_inputs():
    q, k = torch.randn(2, 6, 40, 32), torch.randn(2, 3, 40, 32)
    angle = torch.randn(1, 40, 16)
    angle = torch.cat((angle, angle), dim=-1)
    return [q, k, angle.cos(), angle.sin()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rope_kernel(
    q_ptr,
    q_row_stride,
    k_ptr,
    k_row_stride,
    cos,
    cos_row_stride,
    sin,
    sin_row_stride,
    sl,
    n_qh: tl.constexpr,
    n_kh: tl.constexpr,
    hd: tl.constexpr,
    pad_n_qh: tl.constexpr,
    pad_n_kh: tl.constexpr,
    pad_hd: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    q_ptr = q_ptr + pid * q_row_stride
    k_ptr = k_ptr + pid * k_row_stride
    cos_row_idx = pid % sl
    cos = cos + cos_row_idx * cos_row_stride
    sin = sin + cos_row_idx * sin_row_stride
    cos_offsets = tl.arange(0, pad_hd // 2)
    cos_mask = cos_offsets < hd // 2
    cos_row = tl.load(cos + cos_offsets, mask=cos_mask, other=0)
    sin_row = tl.load(sin + cos_offsets, mask=cos_mask, other=0)
    first_half_q_offsets = tl.arange(0, pad_n_qh)[:, None] * hd + tl.arange(0, pad_hd // 2)[None, :]
    first_half_k_offsets = tl.arange(0, pad_n_kh)[:, None] * hd + tl.arange(0, pad_hd // 2)[None, :]
    first_q_mask = (tl.arange(0, pad_n_qh)[:, None] < n_qh) & (tl.arange(0, pad_hd // 2)[None, :] < hd // 2)
    first_k_mask = (tl.arange(0, pad_n_kh)[:, None] < n_kh) & (tl.arange(0, pad_hd // 2)[None, :] < hd // 2)
    q_tile_1 = tl.load(q_ptr + first_half_q_offsets, mask=first_q_mask, other=0).to(sin_row.dtype)
    k_tile_1 = tl.load(k_ptr + first_half_k_offsets, mask=first_k_mask, other=0).to(sin_row.dtype)
    second_half_q_offsets = first_half_q_offsets + (hd // 2)
    second_half_k_offsets = first_half_k_offsets + (hd // 2)
    q_tile_2 = tl.load(q_ptr + second_half_q_offsets, mask=first_q_mask, other=0).to(sin_row.dtype)
    k_tile_2 = tl.load(k_ptr + second_half_k_offsets, mask=first_k_mask, other=0).to(sin_row.dtype)
    tl.store(q_ptr + first_half_q_offsets, q_tile_1 * cos_row - q_tile_2 * sin_row, mask=first_q_mask)
    tl.store(q_ptr + second_half_q_offsets, q_tile_2 * cos_row - q_tile_1 * sin_row, mask=first_q_mask)
    tl.store(k_ptr + first_half_k_offsets, k_tile_1 * cos_row - k_tile_2 * sin_row, mask=first_k_mask)
    tl.store(k_ptr + second_half_k_offsets, k_tile_2 * cos_row + k_tile_1 * sin_row, mask=first_k_mask)


class ModelNew(nn.Module):
    def forward(self, q, k, cos, sin):
        q = q.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        k = k.transpose(1, 2).clone(memory_format=torch.contiguous_format)
        batch, seq_len, n_q_head, head_dim = q.shape
        n_kv_head = k.shape[2]
        rope_kernel[(batch * seq_len,)](
            q,
            q.stride(1),
            k,
            k.stride(1),
            cos,
            cos.stride(-2),
            sin,
            sin.stride(-2),
            seq_len,
            n_q_head,
            n_kv_head,
            head_dim,
            triton.next_power_of_2(n_q_head),
            triton.next_power_of_2(n_kv_head),
            triton.next_power_of_2(head_dim),
            num_warps=4,
        )
        return q.transpose(1, 2), k.transpose(1, 2)
