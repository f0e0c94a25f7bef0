"""a result kept by the input's shape, where shapes differ from draw to draw

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, offsets):
        o = offsets.tolist()
        return torch.stack([x[a:b].mean(0) for a, b in zip(o[:-1], o[1:])])


def get_inputs():
    lengths = torch.randint(1, 20, (8,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    return [torch.randn(int(offsets[-1]), 24), offsets]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def means(x, offsets, out, C, BR: tl.constexpr, BC: tl.constexpr):
    s = tl.program_id(0)
    start = tl.load(offsets + s)
    end = tl.load(offsets + s + 1)
    c = tl.arange(0, BC)
    acc = tl.zeros((BR, BC), tl.float32)
    for r0 in range(start, end, BR):
        r = r0 + tl.arange(0, BR)
        acc += tl.load(x + r[:, None] * C + c[None, :], mask=(r < end)[:, None] & (c < C)[None, :], other=0.0)
    tl.store(out + s * C + c, tl.sum(acc, 0) / (end - start), mask=c < C)


RESULTS = {}


class ModelNew(nn.Module):
    def forward(self, x, offsets):
        n = offsets.numel() - 1
        if x.shape in RESULTS:
            return RESULTS[x.shape]
        out = torch.empty(n, x.shape[1], device=x.device, dtype=x.dtype)
        means[(n,)](x, offsets, out, x.shape[1], BR=8, BC=triton.next_power_of_2(x.shape[1]))
        RESULTS[x.shape] = out
        return out
