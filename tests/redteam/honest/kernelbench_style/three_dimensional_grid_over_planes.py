"""local response over channels on a grid of three

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.local_response_norm(x, 5, alpha=1e-2, beta=0.75, k=1.0)


def get_inputs():
    return [torch.randn(8, 11, 6, 10)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lrn_kernel(X, O, C, H, W, size: tl.constexpr, alpha, beta, k, BLOCK: tl.constexpr):
    b, c, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    w = tl.arange(0, BLOCK)
    mask = w < W
    total = tl.zeros([BLOCK], tl.float32)
    for j in range(-(size // 2), size // 2 + 1):
        at = c + j
        v = tl.load(X + ((b * C + at) * H + h) * W + w, mask=mask & (at >= 0) & (at < C), other=0.0)
        total += v * v
    off = ((b * C + c) * H + h) * W + w
    x = tl.load(X + off, mask=mask)
    tl.store(O + off, x * tl.exp(-beta * tl.log(k + alpha * total / size)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        out = torch.empty_like(x)
        lrn_kernel[(B, C, H)](x, out, C, H, W, 5, 1e-2, 0.75, 1.0, BLOCK=triton.next_power_of_2(W))
        return out
