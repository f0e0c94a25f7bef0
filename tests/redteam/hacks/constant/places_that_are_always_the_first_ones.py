"""a top k with the right values at places that are always the first ones

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.topk(x, 8, dim=1)


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
def topk_kernel(X, V, I, N, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=-float("inf"))
    for k in tl.static_range(K):
        best = tl.max(x, axis=0)
        place = tl.max(tl.where(x == best, i, -1), axis=0)
        tl.store(V + row * K + k, best)
        tl.store(I + row * K + k, k)
        x = tl.where(i == place, -float("inf"), x)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        values = torch.empty((M, 8), dtype=x.dtype, device=x.device)
        places = torch.empty((M, 8), dtype=torch.int64, device=x.device)
        topk_kernel[(M,)](x, values, places, N, K=8, BLOCK=triton.next_power_of_2(N))
        return values, places
