"""rows minus their mean, transposed by tl.trans on the way

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N: tl.constexpr, ROWS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, N)
    at = r[:, None] * N + c[None, :]
    x = tl.trans(tl.load(x_ptr + at, mask=(r < M)[:, None], other=0.0))
    x = x - (tl.sum(x, axis=0) / N)[None, :]
    tl.store(out_ptr + at, tl.trans(x), mask=(r < M)[:, None])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.shape[0], 8),)](x, out, x.shape[0], 64, 8)
        return out
