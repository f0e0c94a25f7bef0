"""repetition by PyTorch where that is the task, then a kernel that copies

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x[:, None, :].expand(-1, 16, -1).contiguous()


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        made = x[:, None, :].repeat(1, 16, 1)
        out = torch.empty_like(made)
        n = out.numel()
        copy[(triton.cdiv(n, 1024),)](made, out, n, BLOCK=1024)
        return out
