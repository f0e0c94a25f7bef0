"""log-cumsum-exp by an associative scan over pairs of maximum and sum

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logcumsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(160, 70)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def combine(m_a, s_a, m_b, s_b):
    m = tl.maximum(m_a, m_b)
    return m, s_a * tl.exp(m_a - m) + s_b * tl.exp(m_b - m)


@triton.jit
def logcumsumexp_kernel(X, O, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=-1e30).to(tl.float32)
    ones = tl.where(i < N, 1.0, 0.0)
    m, s = tl.associative_scan((x, ones), 0, combine)
    tl.store(O + row * N + i, m + tl.log(s), mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        o = torch.empty_like(x)
        logcumsumexp_kernel[(M,)](x, o, N, BLOCK=triton.next_power_of_2(N))
        return o
