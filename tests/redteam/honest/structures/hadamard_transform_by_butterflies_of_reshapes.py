"""hadamard transform by butterflies of reshapes

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        h = torch.ones(1, 1, device=x.device)
        while h.shape[0] < x.shape[1]:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        return x @ h / x.shape[1] ** 0.5


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
def fwht(x_ptr, y_ptr, N: tl.constexpr, LOG: tl.constexpr, scale):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    v = tl.load(x_ptr + r * N + i)
    for s in tl.static_range(LOG):
        v = tl.reshape(v, (N // (2 << s), 2, 1 << s))
        v = tl.permute(v, (0, 2, 1))
        a, b = tl.split(v)
        v = tl.join(a + b, a - b)
        v = tl.reshape(tl.permute(v, (0, 2, 1)), (N,))
    tl.store(y_ptr + r * N + i, v * scale)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.shape[1]
        fwht[(x.shape[0],)](x, y, N=n, LOG=n.bit_length() - 1, scale=n**-0.5)
        return y
