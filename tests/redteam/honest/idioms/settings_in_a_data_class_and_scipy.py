"""settings in data classes, whose fields are called as functions are, and a table by scipy

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        h = torch.ones(1, 1)
        for _ in range(5):
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        self.register_buffer("h", h)

    def forward(self, x):
        return x @ self.h


def get_inputs():
    return [torch.randn(48, 32)]


def get_init_inputs():
    return []


# --- candidate ---
from dataclasses import dataclass

import scipy.special
import torch
import torch.nn as nn
import triton
import triton.language as tl
from scipy.linalg import hadamard


@dataclass
class Config:
    compile: bool = False
    open: int = 32


@dataclass(frozen=True, order=True)
class Fixed:
    vars: int = 1
    locals: int = 2


@triton.jit
def product(x, h, y, N: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, N)
    a = tl.load(x + r * N + k)
    b = tl.load(h + k[:, None] * N + k[None, :])
    tl.store(y + r * N + k, tl.sum(a[:, None] * b, 0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.config, self.fixed = Config(), Fixed()
        self.register_buffer("h", torch.tensor(hadamard(self.config.open), dtype=torch.float32))

    def forward(self, x):
        assert repr(self.config) and self.config == Config() and self.fixed < Fixed(vars=2)
        y = torch.empty_like(x)
        product[(x.shape[0],)](x, self.h, y, N=self.config.open)
        return y
