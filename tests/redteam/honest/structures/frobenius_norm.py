"""frobenius norm: two-stage reduction with a ping-pong of scratch buffers in a host while loop

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        norm = torch.norm(x, p="fro")
        return x / norm


def get_inputs():
    return [torch.randn(112, 4, 20, 20)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def square_sum(x_ptr, p_ptr, n, BLOCK: tl.constexpr, SQUARE: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    if SQUARE:
        x = x * x
    tl.store(p_ptr + pid, tl.sum(x, 0))


@triton.jit
def div(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) / tl.sqrt(tl.load(s_ptr)), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        shape = x.shape
        flat = x.reshape(-1)
        n = flat.shape[0]
        cur, square, m = flat, True, n
        while True:
            blocks = triton.cdiv(m, 1024)
            nxt = torch.empty(blocks, device=x.device)
            square_sum[(blocks,)](cur, nxt, m, BLOCK=1024, SQUARE=square)
            cur, square, m = nxt, False, blocks
            if m == 1:
                break
        out = torch.empty_like(flat)
        div[(triton.cdiv(n, 1024),)](flat, cur, out, n, BLOCK=1024)
        return out.view(shape)
