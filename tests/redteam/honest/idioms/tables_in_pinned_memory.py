"""tables that host code pins before it moves them

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = [3, 1, 2]

    def forward(self, x):
        return torch.stack([x[:, s] * (i + 1) for i, s in enumerate(self.steps)], 1)


def get_inputs():
    return [torch.randn(50, 4)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pick(x, steps, factors, y, R, C, B: tl.constexpr):
    r = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1)
    s = tl.load(steps + j)
    f = tl.load(factors + j)
    tl.store(y + r * tl.num_programs(1) + j, tl.load(x + r * C + s, mask=r < R) * f, mask=r < R)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = torch.tensor([3, 1, 2], dtype=torch.int32).pin_memory().to("cuda", non_blocking=True)

    def forward(self, x):
        factors = torch.tensor([1.0, 2.0, 3.0]).pin_memory().to(x.device, non_blocking=True)
        y = torch.empty(x.shape[0], 3, device=x.device)
        pick[(triton.cdiv(x.shape[0], 32), 3)](x, self.steps, factors, y, x.shape[0], x.shape[1], B=32)
        return y
