"""batch normalisation by running statistics

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(48)
        self.eval()

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(512, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, out_ptr, count, eps, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    col = at % D
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    mean = tl.load(mean_ptr + col, mask=mask, other=0.0)
    var = tl.load(var_ptr + col, mask=mask, other=1.0)
    y = (x - mean) / tl.sqrt(var + eps)
    y = y * tl.load(w_ptr + col, mask=mask, other=0.0) + tl.load(b_ptr + col, mask=mask, other=0.0)
    tl.store(out_ptr + at, tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(48)

    def forward(self, x):
        out = torch.empty_like(x)
        n = self.norm
        norm[(triton.cdiv(x.numel(), 256),)](
            x, n.running_mean, n.running_var, n.weight, n.bias, out, x.numel(), n.eps, x.shape[1], BLOCK=256
        )
        return out
