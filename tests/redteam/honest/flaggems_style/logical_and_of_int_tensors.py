"""logical and of integer tensors through int1

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.logical_and(a, b)


def get_inputs():
    return [torch.randint(0, 3, (256, 100)), torch.randint(0, 3, (256, 100))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def logical_and_kernel(A, B, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(A + i, mask=mask, other=0)
    b = tl.load(B + i, mask=mask, other=0)
    tl.store(O + i, (a != 0) and (b != 0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape, dtype=torch.bool, device=a.device)
        n = a.numel()
        logical_and_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
        return out
