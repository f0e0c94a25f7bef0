"""mean squared error: squeeze of a keep-dims result

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, y):
        return F.mse_loss(x, y)


def get_inputs():
    return [torch.randn(256, 64), torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mse(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    d = tl.load(x_ptr + i, mask=i < n, other=0.0) - tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(o_ptr, tl.sum(d * d) / n, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.zeros((1,), dtype=torch.float32, device=x.device)
        mse[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
        return out.squeeze()
