"""partial results awaited by volatile loads

expect: incorrect
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, s_ptr, f_ptr, M, N, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    if p < M:
        x = tl.load(x_ptr + p * N + c, mask=c < N, other=float("-inf"))
        tl.store(s_ptr + p * N + c, tl.exp(x - tl.max(x, axis=0)), mask=c < N)
        tl.debug_barrier()
        tl.atomic_xchg(f_ptr + p, 1)
    else:
        r = p - M
        while tl.load(f_ptr + r, volatile=True) == 0:
            pass
        tl.debug_barrier()
        e = tl.load(s_ptr + r * N + c, mask=c < N, other=0.0)
        tl.store(out_ptr + r * N + c, e / tl.sum(e, axis=0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        s = torch.empty_like(x)
        f = torch.zeros(M, dtype=torch.int32, device=x.device)
        kernel[(2 * M,)](x, out, s, f, M, N, BLOCK=1024)
        return out
