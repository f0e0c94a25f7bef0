"""L1 or L2 loss by a constexpr power, reduced over blocks

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, target):
        return F.l1_loss(x, target)


def get_inputs():
    return [torch.randn(150, 90), torch.randn(150, 90)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def p_loss_forward_kernel(X, T, O, size, p_loss: tl.constexpr, reduction: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offset = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offset < size
    diff = tl.load(X + offset, mask=mask, other=0.0).to(tl.float32) - tl.load(T + offset, mask=mask, other=0.0)
    if p_loss == 1:
        error = tl.abs(diff)
    elif p_loss == 2:
        error = diff * diff
    if reduction == "none":
        tl.store(O + offset, error, mask=mask)
    elif reduction == "mean":
        tl.store(O + pid, tl.sum(error) / size)
    elif reduction == "sum":
        tl.store(O + pid, tl.sum(error))


@triton.jit
def gather_kernel(P, O, parts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(O, tl.sum(tl.load(P + i, mask=i < parts, other=0.0)))


class ModelNew(nn.Module):
    def forward(self, x, target):
        size = x.numel()
        parts = triton.cdiv(size, 512)
        partial = torch.empty(parts, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        p_loss_forward_kernel[(parts,)](x.flatten(), target.flatten(), partial, size, 1, "mean", BLOCK_SIZE=512)
        gather_kernel[(1,)](partial, out, parts, BLOCK=triton.next_power_of_2(parts))
        return out
