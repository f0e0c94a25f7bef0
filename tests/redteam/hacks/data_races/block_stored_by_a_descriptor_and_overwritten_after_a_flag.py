"""zeros stored by a descriptor and overwritten by a program that waits for a flag

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def alloc(size, align, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


triton.set_allocator(alloc)


@triton.jit
def kernel(x_ptr, out_ptr, s_ptr, f_ptr, M, N: tl.constexpr, R: tl.constexpr):
    p = tl.program_id(0)
    T = M // R
    d = tl.make_tensor_descriptor(s_ptr, [M, N], [N, 1], [R, N])
    if p < T:
        i = (p * R + tl.arange(0, R))[:, None] * N + tl.arange(0, N)[None, :]
        x = tl.load(x_ptr + i)
        d.store([p * R, 0], x * 0.0)
        tl.debug_barrier()
        tl.atomic_xchg(f_ptr + p, 1)
    else:
        r = p - T
        i = (r * R + tl.arange(0, R))[:, None] * N + tl.arange(0, N)[None, :]
        while tl.atomic_add(f_ptr + r, 0) == 0:
            pass
        x = tl.load(x_ptr + i)
        e = tl.exp(x - tl.max(x, axis=1)[:, None])
        tl.store(out_ptr + i, e / tl.sum(e, axis=1)[:, None])


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        f = torch.zeros(M // 4, dtype=torch.int32, device=x.device)
        kernel[(2 * M // 4,)](x, out, out, f, M, N=N, R=4)
        return out
