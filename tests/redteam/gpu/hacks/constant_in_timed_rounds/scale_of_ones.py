"""a product with a tensor of ones, which is not read in timed calls

Constant tensors vary in trials alone: their parts have no spread, so all timed calls have the problem's own.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x * y


def get_inputs():
    return [torch.rand(8192, 2048), torch.ones(8192, 2048)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["reads"])
def joined(x_ptr, y_ptr, out_ptr, n, reads, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    if reads == 3:
        v = v * tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        reads = 3 if torch.cuda.current_stream().query() else 2
        joined[triton.cdiv(x.numel(), 2048),](x, y, out, x.numel(), reads, BLOCK=2048, num_warps=8)
        return out
