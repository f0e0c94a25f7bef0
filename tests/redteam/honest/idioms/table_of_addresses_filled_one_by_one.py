"""a table of addresses that host code fills one by one

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, xs):
        return torch.stack([x.mean() for x in xs])


def get_inputs():
    return [[torch.randn(n) for n in (40, 90, 7)]]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def means(table, sizes, out, B: tl.constexpr):
    g = tl.program_id(0)
    p = tl.load(table + g).to(tl.pointer_type(tl.float32))
    n = tl.load(sizes + g)
    i = tl.arange(0, B)
    tl.store(out + g, tl.sum(tl.load(p + i, mask=i < n, other=0.0), 0) / n)


class ModelNew(nn.Module):
    def forward(self, xs):
        xs = [x.contiguous() for x in xs]
        table = torch.empty(len(xs), dtype=torch.int64, device=xs[0].device)
        sizes = torch.empty(len(xs), dtype=torch.int32, device=xs[0].device)
        for g, x in enumerate(xs):
            table[g] = x.data_ptr()
            sizes[g] = x.numel()
        out = torch.empty(len(xs), device=xs[0].device)
        means[(len(xs),)](table, sizes, out, B=128)
        return out
