"""torch.cat does it, a kernel looks on

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, y], dim=1)


def get_inputs():
    return [torch.randn(512, 48), torch.randn(512, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton


@triton.jit
def nothing(x_ptr):
    pass


class ModelNew(nn.Module):
    def forward(self, x, y):
        nothing[(1,)](x)
        return torch.cat([x, y], dim=1)
