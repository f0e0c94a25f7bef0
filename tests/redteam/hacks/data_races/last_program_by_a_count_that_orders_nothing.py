"""last program by a count that orders nothing

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(0)


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
def mean(x_ptr, part_ptr, count_ptr, o_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(part_ptr + row * N + c, tl.load(x_ptr + row * N + c, mask=c < N), mask=c < N)
    if tl.atomic_add(count_ptr, 1, sem="relaxed") == M - 1:
        acc = tl.zeros([BLOCK], tl.float32)
        for r in range(0, M):
            acc += tl.load(part_ptr + r * N + c, mask=c < N, other=0.0)
        tl.store(o_ptr + c, acc / M, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        part = torch.empty_like(x)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        out = torch.empty(x.shape[1], device=x.device)
        mean[(x.shape[0],)](x, part, count, out, x.shape[0], x.shape[1], BLOCK=64)
        return out
