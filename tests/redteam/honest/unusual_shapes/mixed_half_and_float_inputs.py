"""a half-precision input with a float32 weight, float32 out

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x.float() * w


def get_inputs():
    return [torch.randn(150, 64).half(), torch.randn(64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(X, W, O, N, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < n)
    w = tl.load(W + i % N, mask=i < n)
    tl.store(O + i, x.to(tl.float32) * w, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        scale_kernel[(triton.cdiv(x.numel(), 512),)](x, w, out, x.shape[1], x.numel(), BLOCK=512)
        return out
