"""GELU with erf from tl.extra by a device function

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(256, 260)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_none(x):
    scale: tl.constexpr = 0.7071067811
    return 0.5 * x * (1 + tl.math.erf(x * scale))


@triton.jit
def gelu_kernel(X, O, num_tasks, tiles_per_cta, tile_size: tl.constexpr):
    num_ctas = tl.num_programs(0)
    init_tid = tl.program_id(0) * tile_size + tl.arange(0, tile_size)
    for j in range(0, tiles_per_cta):
        tid = init_tid + j * tile_size * num_ctas
        mask = tid < num_tasks
        x = tl.load(X + tid, mask=mask).to(tl.float32)
        tl.store(O + tid, gelu_none(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        tiles = triton.cdiv(n, 1024)
        ctas = min(tiles, 32)
        gelu_kernel[(ctas, 1, 1)](x, out, n, triton.cdiv(tiles, ctas), tile_size=1024)
        return out
