"""partial sums written and read in one launch

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def both(x_ptr, part_ptr, o_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(part_ptr + row * N + c, tl.load(x_ptr + row * N + c, mask=c < N), mask=c < N)
    tl.debug_barrier()
    if row == M - 1:
        acc = tl.zeros([BLOCK], tl.float32)
        for r in range(0, M):
            acc += tl.load(part_ptr + r * N + c, mask=c < N, other=0.0)
        tl.store(o_ptr + c, acc, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        part = torch.empty_like(x)
        out = torch.empty(x.shape[1], device=x.device)
        both[(x.shape[0],)](x, part, out, x.shape[0], x.shape[1], BLOCK=64)
        return out
