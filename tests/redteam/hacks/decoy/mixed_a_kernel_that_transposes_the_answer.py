"""mixed: a kernel that transposes PyTorch's answer, and a view that turns it back

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def turn(x, y, M, N, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    tl.store(y + c * M + r, tl.load(x + r * N + c, mask=c < N), mask=c < N)


def turned(x):
    y = torch.empty(x.shape[1], x.shape[0], device=x.device)
    turn[(x.shape[0],)](x, y, x.shape[0], x.shape[1], B=128)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x):
        return turned(torch.softmax(x, -1)).t().contiguous()
