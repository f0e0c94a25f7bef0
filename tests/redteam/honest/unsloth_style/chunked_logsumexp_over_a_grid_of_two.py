"""logsumexp of long rows in chunks, then joined

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(100, 600)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chunked_forward(X, row_stride, LSE, VOCAB, N_CHUNKS: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0)
    chunk_idx = tl.program_id(1)
    X += row_idx * tl.cast(row_stride, tl.int64)
    LSE += row_idx * N_CHUNKS + chunk_idx
    col_offsets = chunk_idx * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    logits = tl.load(X + col_offsets, mask=col_offsets < VOCAB, other=-float("inf")).to(tl.float32)
    c = tl.max(logits, 0)
    tl.store(LSE, c + tl.log(tl.sum(tl.exp(logits - c), 0)))


@triton.jit
def join(LSE, OUT, N_CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    row_idx = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    part = tl.load(LSE + row_idx * N_CHUNKS + i, mask=i < N_CHUNKS, other=-float("inf"))
    c = tl.max(part, 0)
    tl.store(OUT + row_idx, c + tl.log(tl.sum(tl.exp(part - c), 0)))


class ModelNew(nn.Module):
    def forward(self, x):
        M, V = x.shape
        n_chunks = (V + 255) // 256
        lse = torch.empty((M, n_chunks), dtype=torch.float32, device=x.device)
        out = torch.empty(M, dtype=x.dtype, device=x.device)
        chunked_forward[(M, n_chunks)](x, x.stride(0), lse, V, N_CHUNKS=n_chunks, BLOCK_SIZE=256)
        join[(M,)](lse, out, N_CHUNKS=n_chunks, BLOCK=triton.next_power_of_2(n_chunks))
        return out
