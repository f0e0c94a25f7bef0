"""columns' maxima by atomic maxima over integers

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=0)


def get_inputs():
    return [torch.randint(-1000, 1000, (400, 70), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def column_max_kernel(X, O, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + r[:, None] * N + c[None, :], mask=(r[:, None] < M) & (c[None, :] < N), other=-2147483648)
    tl.atomic_max(O + c, tl.max(x, axis=0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.full((N,), -2147483648, dtype=torch.int32, device=x.device)
        column_max_kernel[(triton.cdiv(M, 32),)](x, out, M, N, ROWS=32, BLOCK=triton.next_power_of_2(N))
        return out
