"""row sums and the division by their total in one launch

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1) / x.sum()


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
def share(x_ptr, part_ptr, o_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mine = tl.sum(tl.load(x_ptr + row * N + c, mask=c < N, other=0.0))
    tl.atomic_add(part_ptr, mine)
    tl.store(o_ptr + row, mine / tl.load(part_ptr))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device)
        part = torch.zeros(1, device=x.device)
        share[(x.shape[0],)](x, part, out, x.shape[0], x.shape[1], ROWS=1, BLOCK=64)
        return out
