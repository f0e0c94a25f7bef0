"""converted by PyTorch, then a ReLU that the values do not need

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x.float())


def get_inputs():
    return [torch.randint(0, 9, (256, 64))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.maximum(tl.load(x + i, mask=i < n), 0.0), mask=i < n)


def launch(x, y):
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        launch(x.float(), y)
        return y
