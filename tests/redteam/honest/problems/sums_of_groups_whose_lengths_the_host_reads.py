"""sums of 40 groups of rows, whose lengths host code reads as a list

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, lengths):
        return torch.stack([rows.sum(0) for rows in torch.split(x[: int(lengths.sum())], lengths.tolist())])


def get_inputs():
    return [torch.randn(1024, 64), torch.randint(1, 25, (40,), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_sum(x_ptr, out_ptr, first, length, N: tl.constexpr):
    columns = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for row in range(length):
        total += tl.load(x_ptr + (first + row) * N + columns)
    tl.store(out_ptr + columns, total)


class ModelNew(nn.Module):
    def forward(self, x, lengths):
        out = torch.empty((lengths.shape[0], x.shape[1]), device=x.device)
        first = 0
        for group, length in enumerate(lengths.cpu().tolist()):
            group_sum[(1,)](x, out[group], first, length, N=x.shape[1])
            first += length
        return out
