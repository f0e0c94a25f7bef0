"""division by an invariant with umulhi

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.stack([x // 7, x % 7], -1)


def get_inputs():
    return [torch.randint(0, 2**30, (2000,), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fast_divmod(x, magic, shift: tl.constexpr):
    q = tl.umulhi(x.to(tl.uint32), magic) >> shift
    return q


@triton.jit
def div7(x_ptr, q_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0).to(tl.uint32)
    magic = tl.full((BLOCK,), 2454267027, tl.uint32)
    q = fast_divmod(x, magic, 2)
    r = x - q * 7
    tl.store(q_ptr + 2 * i, q.to(tl.int32), mask=i < n)
    tl.store(q_ptr + 2 * i + 1, r.to(tl.int32), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty(*x.shape, 2, dtype=x.dtype, device=x.device)
        div7[(triton.cdiv(x.numel(), 512),)](x, o, x.numel(), BLOCK=512)
        return o
