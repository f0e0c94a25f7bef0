"""PyTorch computes inside of a captured graph

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x)


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exp(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            g = torch.cuda.CUDAGraph()
            kept, y = torch.exp(x), torch.empty_like(x)
            with torch.cuda.graph(g):
                exp[(triton.cdiv(x.numel(), 128),)](kept, y, x.numel(), B=128)
            self.graphs[x.shape] = (g, y)
        g, y = self.graphs[x.shape]
        g.replay()
        return y
