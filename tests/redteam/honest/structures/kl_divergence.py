"""KL divergence: rows, then a final sum in one program, 0-d output

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, predictions, targets):
        return F.kl_div(torch.log(predictions), targets, reduction="batchmean")


def get_inputs():
    return [torch.rand(128, 72).softmax(dim=-1), torch.rand(128, 72).softmax(dim=-1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kl_rows(p_ptr, t_ptr, o_ptr, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + r * N + c, mask=c < N, other=1.0)
    t = tl.load(t_ptr + r * N + c, mask=c < N, other=0.0)
    v = tl.where(t > 0, t * (tl.log(t) - tl.log(p)), 0.0)
    tl.store(o_ptr + r, tl.sum(v, axis=0))


@triton.jit
def finish(o_ptr, out_ptr, M, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for s in range(0, M, BLOCK):
        i = s + tl.arange(0, BLOCK)
        acc += tl.load(o_ptr + i, mask=i < M, other=0.0)
    tl.store(out_ptr, tl.sum(acc) / M)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        M, N = predictions.shape
        rows = torch.empty(M, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        kl_rows[(M,)](predictions, targets, rows, N, BLOCK=128)
        finish[(1,)](rows, out, M, BLOCK=256)
        return out
