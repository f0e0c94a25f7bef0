"""sum in a loop whose last block has no other

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, mean, logvar):
        return -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp(), dim=1)


def get_inputs():
    return [torch.randn(200, 75), torch.randn(200, 75)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kl_kernel(M_ptr, V_ptr, O_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = 0.0
    for start in range(0, D, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < D
        mu = tl.load(M_ptr + row * D + i, mask=inside)
        lv = tl.load(V_ptr + row * D + i, mask=inside)
        acc += tl.sum(1 + lv - mu * mu - tl.exp(lv))
    tl.store(O_ptr + row, -0.5 * acc)


class ModelNew(nn.Module):
    def forward(self, mean, logvar):
        B, D = mean.shape
        out = torch.empty(B, dtype=mean.dtype, device=mean.device)
        kl_kernel[(B,)](mean, logvar, out, D, BLOCK=32)
        return out
