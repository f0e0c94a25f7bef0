"""linear attention in chunks, within by a masked product and between by a state

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.tril(q @ k.transpose(1, 2)) @ v


def get_inputs():
    return [torch.randn(12, 48, 16) * 0.3, torch.randn(12, 48, 16) * 0.3, torch.randn(12, 48, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chunk_fwd_kernel(Q, K, V, O, s_b_k, s_t_k, s_b_v, s_t_v, T, BT: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    i_b = tl.program_id(0)
    o_i = tl.arange(0, BT)
    m_s = o_i[:, None] >= o_i[None, :]
    h = tl.zeros([DK, DV], dtype=tl.float32)
    for i_t in range(0, tl.cdiv(T, BT)):
        p_q = tl.make_block_ptr(Q + i_b * s_b_k, (T, DK), (s_t_k, 1), (i_t * BT, 0), (BT, DK), (1, 0))
        p_k = tl.make_block_ptr(K + i_b * s_b_k, (DK, T), (1, s_t_k), (0, i_t * BT), (DK, BT), (0, 1))
        p_v = tl.make_block_ptr(V + i_b * s_b_v, (T, DV), (s_t_v, 1), (i_t * BT, 0), (BT, DV), (1, 0))
        p_o = tl.make_block_ptr(O + i_b * s_b_v, (T, DV), (s_t_v, 1), (i_t * BT, 0), (BT, DV), (1, 0))
        b_q = tl.load(p_q, boundary_check=(0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_s = tl.dot(b_q, b_k, allow_tf32=False)
        b_s = tl.where(m_s, b_s, 0)
        b_o = tl.dot(b_s, b_v, allow_tf32=False)
        b_o += tl.dot(b_q, h, allow_tf32=False)
        h += tl.dot(b_k, b_v, allow_tf32=False)
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        B, T, DK = q.shape
        o = torch.empty_like(v)
        chunk_fwd_kernel[(B,)](
            q, k, v, o, q.stride(0), q.stride(1), v.stride(0), v.stride(1), T, BT=16, DK=DK, DV=v.shape[-1]
        )
        return o
