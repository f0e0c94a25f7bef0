"""a bias left out that the normalisation behind it takes away

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(32))

    def forward(self, x):
        x = x + self.bias
        return (x - x.mean(dim=0)) / (x.var(dim=0, unbiased=False) + 1e-5).sqrt()


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, out_ptr, M, D, ROWS: tl.constexpr):
    col = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    mask = rows < M
    x = tl.load(x_ptr + rows * D + col, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / M
    centred = tl.where(mask, x - mean, 0.0)
    var = tl.sum(centred * centred, axis=0) / M
    tl.store(out_ptr + rows * D + col, centred / tl.sqrt(var + 1e-5), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        norm[(x.shape[1],)](x, out, x.shape[0], x.shape[1], ROWS=triton.next_power_of_2(x.shape[0]))
        return out
