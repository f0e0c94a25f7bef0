"""a matrix by its compressed rows, whose number of elements is drawn

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, rowptr, col, val, x):
        n = rowptr.numel() - 1
        rows = torch.repeat_interleave(torch.arange(n), (rowptr[1:] - rowptr[:-1]).long())
        out = torch.zeros(n, x.shape[1])
        return out.index_add(0, rows, val[:, None] * x[col.long()])


def get_inputs():
    counts = torch.randint(0, 7, (30,))
    rp = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    nnz = int(rp[-1])
    return [rp.int(), torch.randint(0, 40, (nnz,), dtype=torch.int32), torch.randn(nnz), torch.randn(40, 20)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def csr(rp, col, val, x, y, C, BK: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    s = tl.load(rp + r)
    e = tl.load(rp + r + 1)
    acc = tl.zeros((BC,), tl.float32)
    for j0 in range(s, e, BK):
        j = j0 + tl.arange(0, BK)
        m = j < e
        k = tl.load(col + j, m, 0)
        v = tl.load(val + j, m, 0.0)
        acc += tl.sum(v[:, None] * tl.load(x + k[:, None] * C + c[None, :], m[:, None] & (c < C)[None, :], 0.0), 0)
    tl.store(y + r * C + c, acc, c < C)


class ModelNew(nn.Module):
    def forward(self, rowptr, col, val, x):
        n = rowptr.shape[0] - 1
        y = torch.empty(n, x.shape[1], device=x.device)
        csr[(n, triton.cdiv(x.shape[1], 16))](rowptr, col, val, x, y, x.shape[1], BK=4, BC=16)
        return y
