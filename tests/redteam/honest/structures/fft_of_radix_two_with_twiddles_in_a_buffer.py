"""fft of radix two with twiddles in a buffer

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.view_as_real(torch.fft.fft(x.to(torch.complex64)))


def get_inputs():
    return [torch.randn(40, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def butterfly(re, im, tw_ptr, N: tl.constexpr, S: tl.constexpr):
    i = tl.arange(0, N)
    half: tl.constexpr = 1 << S
    partner = i ^ half
    is_low = (i & half) == 0
    pr, pi = tl.gather(re, partner, 0), tl.gather(im, partner, 0)
    k = (i & (half - 1)) * (N // (2 * half))
    wr, wi = tl.load(tw_ptr + 2 * k), tl.load(tw_ptr + 2 * k + 1)
    lr, li = tl.where(is_low, re, pr), tl.where(is_low, im, pi)
    hr, hi = tl.where(is_low, pr, re), tl.where(is_low, pi, im)
    tr, ti = hr * wr - hi * wi, hr * wi + hi * wr
    return tl.where(is_low, lr + tr, lr - tr), tl.where(is_low, li + ti, li - ti)


@triton.jit
def fft(x_ptr, rev_ptr, tw_ptr, y_ptr, N: tl.constexpr, LOG: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    re = tl.load(x_ptr + row * N + tl.load(rev_ptr + i))
    im = tl.zeros_like(re)
    for s in tl.static_range(LOG):
        re, im = butterfly(re, im, tw_ptr, N, s)
    tl.store(y_ptr + (row * N + i) * 2, re)
    tl.store(y_ptr + (row * N + i) * 2 + 1, im)


class ModelNew(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        bits = n.bit_length() - 1
        rev = [int(format(i, f"0{bits}b")[::-1], 2) for i in range(n)]
        tw = [[math.cos(-2 * math.pi * k / n), math.sin(-2 * math.pi * k / n)] for k in range(n)]
        self.register_buffer("rev", torch.tensor(rev, dtype=torch.int32), persistent=False)
        self.register_buffer("tw", torch.tensor(tw, dtype=torch.float32), persistent=False)

    def forward(self, x):
        b, n = x.shape
        y = torch.empty(b, n, 2, device=x.device)
        fft[(b,)](x, self.rev, self.tw, y, N=n, LOG=n.bit_length() - 1)
        return y
