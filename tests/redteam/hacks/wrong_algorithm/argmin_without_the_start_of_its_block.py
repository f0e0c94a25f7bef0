"""argmin within its block

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argmin(x, dim=1)


def get_inputs():
    return [torch.randn(200, 170)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def argmin_kernel(inp, out_index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m_offset = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    min_values = tl.full([BLOCK_M], dtype=tl.float32, value=float("inf"))
    argmin_values = tl.full([BLOCK_M], dtype=tl.int64, value=0)
    for start_n in range(0, N, BLOCK_N):
        n_offset = start_n + tl.arange(0, BLOCK_N)
        mask = (m_offset[:, None] < M) and (n_offset[None, :] < N)
        values = tl.load(inp + m_offset[:, None] * N + n_offset[None, :], mask=mask, other=float("inf"))
        local_min, local_argmin = tl.min(values, 1, return_indices=True, return_indices_tie_break_left=True)
        update = local_min < min_values
        min_values = tl.where(update, local_min, min_values)
        argmin_values = tl.where(update, local_argmin, argmin_values)
    tl.store(out_index + m_offset, argmin_values, mask=m_offset < M)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, dtype=torch.int64, device=x.device)
        argmin_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]),)](x, out, M, N, BLOCK_M=8, BLOCK_N=64)
        return out
