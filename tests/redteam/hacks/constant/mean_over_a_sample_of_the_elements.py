"""a mean over a sample of the elements

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
def k(x, o, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o + r, tl.sum(tl.sigmoid(tl.load(x + r * N + c))) / BLOCK)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, x[0].numel(), BLOCK=512)
        return o
