"""block stored by a descriptor and read again by an atomic

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(9843)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def k(x_ptr, d, o_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    p = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + p, mask=p < n, other=0.0)
    d.store([pid * BLOCK], x * 2.0)
    tl.debug_barrier()
    y = tl.atomic_add(o_ptr + p, 0.0, mask=p < n)
    tl.store(out_ptr + p, y + 1.0, mask=p < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        N = triton.cdiv(n, 256) * 256
        mid = torch.empty(N, device=x.device)
        d = TensorDescriptor(mid, [N], [1], [256])
        k[(triton.cdiv(n, 256),)](x, d, mid, out, n, BLOCK=256)
        return out
