"""shortest paths of floyd and warshall one pivot a launch

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, d):
        d = d.clone()
        for k in range(d.shape[-1]):
            d = torch.minimum(d, d[:, :, k : k + 1] + d[:, k : k + 1, :])
        return d


def get_inputs():
    return [torch.rand(6, 16, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relax(src, dst, k, N: tl.constexpr):
    base = tl.program_id(0) * N * N
    i = tl.arange(0, N)
    at = base + i[:, None] * N + i[None, :]
    col = tl.load(src + base + i * N + k)
    row = tl.load(src + base + k * N + i)
    tl.store(dst + at, tl.minimum(tl.load(src + at), col[:, None] + row[None, :]))


class ModelNew(nn.Module):
    def forward(self, d):
        pair = [torch.empty_like(d), torch.empty_like(d)]
        current = d
        for k in range(d.shape[-1]):
            out = pair[k & 1]
            relax[(d.shape[0],)](current, out, k, N=d.shape[-1])
            current = out
        return current
