"""small integer types widened before they are multiplied

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a.to(torch.int32) * b.to(torch.int32)


def get_inputs():
    return [
        torch.randint(-3000, 3000, (150, 60), dtype=torch.int16),
        torch.randint(0, 255, (150, 60), dtype=torch.uint8),
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mul_kernel(A, B, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(A + i, mask=i < n, other=0).to(tl.int32)
    b = tl.load(B + i, mask=i < n, other=0).to(tl.int32)
    tl.store(O + i, a * b, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape, dtype=torch.int32, device=a.device)
        mul_kernel[(triton.cdiv(a.numel(), 512),)](a, b, out, a.numel(), BLOCK=512)
        return out
