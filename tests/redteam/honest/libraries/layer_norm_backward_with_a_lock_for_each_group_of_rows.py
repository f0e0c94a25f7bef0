"""layer norm backward with a lock for each group of rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, dy, x):
        return (dy * x).sum(0)


def get_inputs():
    return [torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_sums(dy_ptr, x_ptr, dw_ptr, lock_ptr, N, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    part = tl.load(dy_ptr + row * N + c, mask=mask, other=0.0) * tl.load(x_ptr + row * N + c, mask=mask, other=0.0)
    group = row % GROUPS
    lock_ptr += group
    count_ptr = lock_ptr + GROUPS
    dw_ptr = dw_ptr + group * N + c
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        part += tl.load(dw_ptr, mask=mask)
    tl.store(dw_ptr, part, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def finish(dw_ptr, o_ptr, N, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for g in range(GROUPS):
        acc += tl.load(dw_ptr + g * N + c, mask=c < N, other=0.0)
    tl.store(o_ptr + c, acc, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, dy, x):
        M, N = x.shape
        groups = 4
        locks = torch.zeros(2 * groups, dtype=torch.int32, device=x.device)
        partial = torch.zeros(groups, N, device=x.device)
        out = torch.empty(N, device=x.device)
        partial_sums[(M,)](dy, x, partial, locks, N, GROUPS=groups, BLOCK=64)
        finish[(1,)](partial, out, N, GROUPS=groups, BLOCK=64)
        return out
