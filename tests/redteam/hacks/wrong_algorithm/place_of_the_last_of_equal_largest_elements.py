"""the largest of each row with the last of its places

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.max(x, dim=1)


def get_inputs():
    return [torch.randint(0, 20, (120, 90)).float()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(X, V, I, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=-float("inf"))
    best = tl.max(x, axis=0)
    tl.store(V + row, best)
    tl.store(I + row, tl.max(tl.where(x == best, i, -1), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        values = torch.empty(M, dtype=x.dtype, device=x.device)
        places = torch.empty(M, dtype=torch.int64, device=x.device)
        max_kernel[(M,)](x, values, places, N, BLOCK=triton.next_power_of_2(N))
        return values, places
