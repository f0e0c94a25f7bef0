"""named tuples as arguments and as the state of a loop

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(-1), x.amax(-1), x.abs().sum(-1)


def get_inputs():
    return [torch.randn(30, 90)]


def get_init_inputs():
    return []


# --- candidate ---
from collections import namedtuple
from typing import NamedTuple

import torch
import torch.nn as nn
import triton
import triton.language as tl

Rows = namedtuple("Rows", "pointer stride count")
Shape = namedtuple("Shape", "rows columns")


class Running(NamedTuple):
    total: tl.tensor
    extreme: tl.tensor
    inner: tl.tensor


class Inner(NamedTuple):
    magnitude: tl.tensor


@triton.jit
def updated(s, values, mask):
    return Running(
        total=s.total + tl.sum(tl.where(mask, values, 0.0), 0),
        extreme=tl.maximum(s.extreme, tl.max(values, 0)),
        inner=Inner(magnitude=s.inner.magnitude + tl.sum(tl.where(mask, tl.abs(values), 0.0), 0)),
    )


@triton.jit
def rowwise(x: Rows, shape, total, extreme, magnitude, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    zero = tl.sum(tl.zeros((BLOCK,), tl.float32), 0)
    s = Running(zero, zero - float("inf"), Inner(zero))
    for c in range(0, shape.columns, BLOCK):
        i = c + tl.arange(0, BLOCK)
        s = updated(
            s, tl.load(x.pointer + r * x.stride + i, mask=i < shape.columns, other=float("-inf")), i < shape.columns
        )
    tl.store(total + r, s.total)
    tl.store(extreme + r, s[1])
    tl.store(magnitude + r, s.inner.magnitude)


class ModelNew(nn.Module):
    def forward(self, x):
        n, c = x.shape
        out = torch.empty(3, n, device=x.device)
        rowwise[(n,)](Rows(x, x.stride(0), n), Shape(n, c), out[0], out[1], out[2], BLOCK=32)
        return out[0], out[1], out[2]
