"""dropout by a hash of 64-bit offsets and a given shift

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, shift):
        i = torch.arange(x.numel(), dtype=torch.int64).view_as(x)
        h = ((i + shift.long()) * 2654435761) % 4294967296
        return torch.where(h > 2147483648, x, torch.zeros_like(x)) * 2.0


def get_inputs():
    return [torch.randn(200, 64), torch.tensor(77)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def seeded_dropout(X, Shift, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    shift = tl.load(Shift)
    h = ((i.to(tl.int64) + shift) * 2654435761) % 4294967296
    x = tl.load(X + i, mask=i < n, other=0.0)
    tl.store(O + i, tl.where(h > 2147483648, x, 0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, shift):
        o = torch.empty_like(x)
        n = x.numel()
        seeded_dropout[(triton.cdiv(n, 1024),)](x, shift, o, n, BLOCK=1024)
        return o
