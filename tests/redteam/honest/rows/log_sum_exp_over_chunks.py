"""log-sum-exp over chunks, tl.exp2 and tl.log2

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.logsumexp(x, dim=1)


def get_inputs():
    return [torch.randn(512, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    LOG2E: tl.constexpr = 1.4426950408889634
    m = tl.full((), -float("inf"), tl.float32)
    s = tl.full((), 0.0, tl.float32)
    for k in range(0, tl.cdiv(N, BLOCK)):
        c = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf")) * LOG2E
        new = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp2(m - new) + tl.sum(tl.exp2(x - new), axis=0)
        m = new
    tl.store(out_ptr + row, (m + tl.log2(s)) / LOG2E)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
