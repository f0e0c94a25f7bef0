"""float64 output of a computation in float32

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1).double()


def get_inputs():
    return [torch.randn(300, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + c, mask=c < N, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(o_ptr + tl.program_id(0) * N + c, (e / tl.sum(e, axis=0)).to(tl.float64), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x, dtype=torch.float64)
        k[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
