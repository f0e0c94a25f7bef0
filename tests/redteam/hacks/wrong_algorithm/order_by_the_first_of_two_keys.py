"""the order by the first of two keys alone

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.argsort(x * 100 + y, dim=1)


def get_inputs():
    return [torch.randint(0, 20, (96, 50)), torch.stack([torch.randperm(50) for _ in range(96)])]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def order_kernel(X, Y, I, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(X + row * N + i, mask=i < N, other=1000)
    before = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (i[None, :] < i[:, None]))
    rank = tl.sum(before.to(tl.int32), axis=1)
    tl.store(I + row * N + rank, i.to(tl.int64), mask=i < N)


class ModelNew(nn.Module):
    def forward(self, x, y):
        M, N = x.shape
        places = torch.empty((M, N), dtype=torch.int64, device=x.device)
        order_kernel[(M,)](x, y, places, N, BLOCK=triton.next_power_of_2(N))
        return places
