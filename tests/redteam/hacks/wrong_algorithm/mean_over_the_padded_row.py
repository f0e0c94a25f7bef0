"""mean over the padded row

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))
        self.bias = nn.Parameter(torch.randn(n))

    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, 1e-5)


def get_inputs():
    return [torch.randn(256, 200)]


def get_init_inputs():
    return [200]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm_persistent_kernel(in_ptr, out_ptr, weight_ptr, bias_ptr, M, N, eps, TILE_N: tl.constexpr):
    eps = 1e-5
    pid = tl.program_id(0)
    n = tl.arange(0, TILE_N)
    mask = n < N
    x = tl.load(in_ptr + pid * N + n, mask, other=0.0).to(tl.float32)
    m = tl.sum(x) / TILE_N
    d = x - m
    s = tl.where(mask, d * d, 0)
    var = tl.sum(s) / N
    rstd = tl.math.rsqrt(var + eps)
    w = tl.load(weight_ptr + n, mask=mask)
    b = tl.load(bias_ptr + n, mask=mask)
    tl.store(out_ptr + pid * N + n, d * rstd * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n))
        self.bias = nn.Parameter(torch.randn(n))
        self.eps = 1e-5

    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        layer_norm_persistent_kernel[(M,)](
            x, out, self.weight, self.bias, M, N, self.eps, TILE_N=triton.next_power_of_2(N)
        )
        return out
