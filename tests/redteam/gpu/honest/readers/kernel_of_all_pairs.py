"""a mean of a Gaussian kernel over all pairs

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        d = (x * x).sum(dim=1)[:, None] + (y * y).sum(dim=1)[None, :] - 2.0 * (x @ y.t())
        return torch.exp(-d / 64.0).mean()


def get_inputs():
    return [torch.rand(8192, 64), torch.rand(8192, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def part(x_ptr, y_ptr, out_ptr, n, STEP: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    k = tl.arange(0, D)
    residue = tl.program_id(1)
    i = residue + STEP * (tl.program_id(0) * BM + tl.arange(0, BM))
    x = tl.load(x_ptr + i[:, None] * D + k[None, :])
    square = tl.sum(x * x, axis=1)
    first, step, count = 0, 1, n
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, count, BN):
        j = first + step * (start + tl.arange(0, BN))
        y = tl.load(y_ptr + j[None, :] * D + k[:, None])
        near = tl.dot(x, y, input_precision="tf32x3")
        total += tl.exp((2.0 * near - square[:, None] - tl.sum(y * y, axis=0)[None, :]) / 64.0)
    tl.store(out_ptr + residue * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0) * step)


@triton.jit
def whole(part_ptr, out_ptr, parts, pairs, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0) / pairs)


class ModelNew(nn.Module):
    def forward(self, x, y):
        n = x.shape[0]
        tiles = n // 512
        parts = torch.empty(8 * tiles, device=x.device)
        out = torch.empty((), device=x.device)
        part[tiles, 8](x, y, parts, n, STEP=8, D=64, BM=64, BN=64, num_warps=4)
        whole[1,](parts, out, 8 * tiles, float(n) * n, BLOCK=triton.next_power_of_2(8 * tiles))
        return out
