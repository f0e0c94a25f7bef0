"""linear recurrence by a scan of pairs, from the end

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        a = torch.sigmoid(x)
        out = [torch.zeros_like(x[:, 0])]
        for t in reversed(range(x.shape[1])):
            out.append(a[:, t] * out[-1] + x[:, t])
        return torch.stack(out[:0:-1], 1)


def get_inputs():
    return [torch.randn(96, 50)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(a, x, b, y):
    return a * b, b * x + y


@triton.jit
def recurrence_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    decay = tl.where(cols < N, tl.sigmoid(x), 1.0)
    _, out = tl.associative_scan((decay, x), axis=0, combine_fn=combine, reverse=True)
    tl.store(out_ptr + row * N + cols, out, mask=cols < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        recurrence_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
        return out
