"""maximum of masked integers taken as zero

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.max(1).values


def get_inputs():
    return [torch.randint(1, 1000, (512, 50), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def greatest(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row, tl.max(tl.load(x_ptr + row * N + c, mask=c < N)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
        greatest[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
