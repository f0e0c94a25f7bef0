"""edit distance by a scan of minima

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        n, m = a.shape[1], b.shape[1]
        row = torch.arange(m + 1, device=a.device).repeat(a.shape[0], 1)
        for i in range(n):
            new = [torch.full_like(row[:, 0], i + 1)]
            for j in range(m):
                cost = (a[:, i] != b[:, j]).long()
                new.append(torch.minimum(torch.minimum(row[:, j + 1], new[-1]) + 1, row[:, j] + cost))
            row = torch.stack(new, 1)
        return row[:, -1]


def get_inputs():
    return [torch.randint(0, 3, (50, 9)), torch.randint(0, 3, (50, 8))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def levenshtein(a_ptr, b_ptr, o_ptr, N, M: tl.constexpr):
    p = tl.program_id(0)
    j = tl.arange(0, M)
    b = tl.load(b_ptr + p * M + j)
    row = (j + 1).to(tl.int64)
    edge = tl.zeros((), tl.int64)
    for i in range(N):
        ai = tl.load(a_ptr + p * N + i)
        prev = tl.gather(row, tl.maximum(j - 1, 0), 0)
        prev = tl.where(j == 0, edge, prev)
        best = tl.minimum(row + 1, prev + (b != ai).to(tl.int64))
        edge += 1
        best = tl.minimum(best, tl.where(j == 0, edge + 1, best))
        row = tl.associative_scan(best - j, 0, _least) + j
    tl.store(o_ptr + p, tl.sum(tl.where(j == M - 1, row, 0), 0))


@triton.jit
def _least(x, y):
    return tl.minimum(x, y)


class ModelNew(nn.Module):
    def forward(self, a, b):
        o = torch.empty(a.shape[0], dtype=torch.int64, device=a.device)
        levenshtein[(a.shape[0],)](a, b, o, a.shape[1], b.shape[1])
        return o
