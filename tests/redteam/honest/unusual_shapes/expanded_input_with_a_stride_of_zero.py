"""an expanded input with a stride of zero, read by its strides

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, s):
        return x * s.expand(x.shape[0], x.shape[1])


def get_inputs():
    return [torch.randn(170, 66), torch.randn(170, 1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mul_kernel(X, S, O, N, ss0, ss1, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r, c = i // N, i % N
    x = tl.load(X + i, mask=i < n)
    s = tl.load(S + r * ss0 + c * ss1, mask=i < n)
    tl.store(O + i, x * s, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, s):
        s = s.expand(x.shape[0], x.shape[1])
        out = torch.empty_like(x)
        mul_kernel[(triton.cdiv(x.numel(), 512),)](x, s, out, x.shape[1], *s.stride(), x.numel(), BLOCK=512)
        return out
