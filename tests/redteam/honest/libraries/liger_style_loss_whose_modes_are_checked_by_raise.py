"""liger style loss whose modes are checked by raise

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return (x - y).abs().sum(1)


def get_inputs():
    return [torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss(x_ptr, y_ptr, o_ptr, n_cols, beta, MODE: tl.constexpr, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
    y = tl.load(y_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
    if HAS_WEIGHT:
        raise NotImplementedError("weights are not supported")
    if MODE == "l1":
        d = tl.abs(x - y)
    elif MODE == "l2":
        d = (x - y) * (x - y)
    else:
        raise ValueError(f"unknown mode {MODE}")
    if beta > 0.5 and n_cols > 0:
        tl.store(o_ptr + row, tl.sum(d) * beta)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.shape[0], device=x.device)
        loss[(x.shape[0],)](x, y, out, x.shape[1], 1.0, MODE="l1", HAS_WEIGHT=False, BLOCK=64)
        return out
