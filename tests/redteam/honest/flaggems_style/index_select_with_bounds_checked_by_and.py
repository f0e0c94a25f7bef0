"""index_select over rows, its bounds joined by `and`

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.index_select(x, 0, index)


def get_inputs():
    return [torch.randn(100, 90), torch.randint(0, 100, (170,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def index_select_kernel(inp, out, M, N, index, index_len, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    row_mask = rows < index_len
    idx = tl.load(index + rows, mask=row_mask, other=0)
    block_mask = row_mask and (cols < N)
    safe = block_mask and (idx >= 0 and idx < M)
    selected = tl.load(inp + idx * N + cols, mask=safe, other=0.0)
    tl.store(out + rows * N + cols, selected, mask=block_mask)


class ModelNew(nn.Module):
    def forward(self, x, index):
        M, N = x.shape
        L = index.numel()
        out = torch.empty((L, N), dtype=x.dtype, device=x.device)
        index_select_kernel[(triton.cdiv(L, 8), triton.cdiv(N, 64))](x, out, M, N, index, L, BLOCK_M=8, BLOCK_N=64)
        return out
