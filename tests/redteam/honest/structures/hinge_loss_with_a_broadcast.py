"""hinge loss with a broadcast of (n, 1) against (n,)

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def get_inputs():
    return [torch.rand(512, 1), torch.randint(0, 2, (512,)).float() * 2 - 1]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def hinge(p_ptr, t_ptr, out_ptr, n, m, BP: tl.constexpr, BT: tl.constexpr):
    i = tl.program_id(0) * BP + tl.arange(0, BP)
    p = tl.load(p_ptr + i, mask=i < n, other=0.0)
    acc = tl.zeros((BP,), tl.float32)
    for s in range(0, m, BT):
        j = s + tl.arange(0, BT)
        t = tl.load(t_ptr + j, mask=j < m, other=0.0)
        v = tl.maximum(1.0 - p[:, None] * t[None, :], 0.0)
        v = tl.where((i[:, None] < n) & (j[None, :] < m), v, 0.0)
        acc += tl.sum(v, axis=1)
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, axis=0))


@triton.jit
def mean(parts_ptr, out_ptr, k, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(parts_ptr + i, mask=i < k, other=0.0), axis=0) / count)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        p = predictions.view(-1)
        n, m = p.numel(), targets.numel()
        blocks = triton.cdiv(n, 32)
        parts = torch.empty(blocks, device=p.device)
        out = torch.empty((), device=p.device)
        hinge[(blocks,)](p, targets, parts, n, m, BP=32, BT=64)
        mean[(1,)](parts, out, blocks, float(n * m), BLOCK=triton.next_power_of_2(blocks))
        return out
