"""an energy and a mean of each row

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.stack([(a * a).sum(dim=1), b.mean(dim=1)], dim=1)


def get_inputs():
    return [torch.rand(256, 65536), torch.rand(256, 65536)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    energy = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        a = tl.load(a_ptr + r * n + first + k, mask=first + k < n, other=0.0)
        energy += a * a
        total += tl.load(b_ptr + r * n + first + k, mask=first + k < n, other=0.0)
    tl.store(out_ptr + 2 * r, tl.sum(energy, axis=0))
    tl.store(out_ptr + 2 * r + 1, tl.sum(total, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        rows, n = a.shape
        out = torch.empty((rows, 2), device=a.device)
        row[rows,](a, b, out, n, BLOCK=4096, num_warps=8)
        return out
