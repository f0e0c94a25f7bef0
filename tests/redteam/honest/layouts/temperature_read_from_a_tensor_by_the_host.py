"""a temperature read from a tensor by the host

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, x, bias):
        return torch.tanh(x / self.temperature + bias)


def get_inputs():
    return [torch.randn(512, 64), torch.randn(1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, temperature, bias, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n) / temperature + bias
    tl.store(y_ptr + i, 2.0 * tl.sigmoid(2.0 * x) - 1.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, x, bias):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), self.temperature.item(), float(bias), BLOCK=256)
        return y
