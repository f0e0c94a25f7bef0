"""mean and variance by a reduction of triples

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.var_mean(x, 1)


def get_inputs():
    return [torch.randn(128, 90)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    share = tl.where(n == 0, 0.0, n_b / n)
    delta = mean_b - mean_a
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def variance_kernel(x_ptr, var_ptr, mean_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    n = tl.where(cols < N, 1.0, 0.0)
    mean, m2, count = tl.reduce((x, tl.zeros_like(x), n), 0, welford)
    tl.store(mean_ptr + row, mean)
    tl.store(var_ptr + row, m2 / (count - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        mean = torch.empty(M, device=x.device)
        var = torch.empty(M, device=x.device)
        variance_kernel[(M,)](x, var, mean, N, BLOCK=triton.next_power_of_2(N))
        return var, mean
