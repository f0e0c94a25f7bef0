"""branch on the kind of the floating type

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x.float().exp().half(), y.exp()


def get_inputs():
    return [torch.randn(50, 40).half(), torch.randn(50, 40)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exp_any(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if x.dtype.is_standard_floating() and x.dtype.primitive_bitwidth < 32:
        x = x.to(tl.float32)
    tl.store(o_ptr + i, tl.exp(x).to(o_ptr.dtype.element_ty), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, y):
        outs = []
        for t in (x, y):
            o = torch.empty_like(t)
            exp_any[(triton.cdiv(t.numel(), 256),)](t, o, t.numel(), BLOCK=256)
            outs.append(o)
        return outs[0], outs[1]
