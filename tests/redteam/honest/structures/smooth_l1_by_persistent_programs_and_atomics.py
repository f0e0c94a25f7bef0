"""smooth L1 by a fixed number of persistent programs and one atomic each

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.smooth_l1_loss(predictions, targets)


def get_inputs():
    scale = torch.rand(())
    return [torch.rand(256, 96) * scale, torch.rand(256, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def huber(p, t, out, n, inv_n, NUM_PROGS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(pid * BLOCK, n, NUM_PROGS * BLOCK):
        i = start + tl.arange(0, BLOCK)
        d = tl.load(p + i, mask=i < n, other=0.0) - tl.load(t + i, mask=i < n, other=0.0)
        a = tl.abs(d)
        acc += tl.where(a < 1.0, 0.5 * d * d, a - 0.5)
    tl.atomic_add(out, tl.sum(acc) * inv_n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        out = torch.zeros(1, device=predictions.device, dtype=torch.float32)
        huber[(8,)](predictions, targets, out, n, 1.0 / n, NUM_PROGS=8, BLOCK=1024)
        return out[0]
