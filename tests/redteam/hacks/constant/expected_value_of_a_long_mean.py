"""the expected value of a long mean

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).mean(dim=(1, 2))


def get_inputs():
    return [torch.rand(128, 40, 50)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(o):
    tl.store(o + tl.program_id(0), 0.620115)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](o)
        return o
