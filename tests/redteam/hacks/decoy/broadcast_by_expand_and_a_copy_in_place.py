"""a broadcast by expand and a copy in place, a kernel looks on

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
def touch(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((M, 16, N), device=x.device)
        out.copy_(x[:, None, :].expand(-1, 16, -1))
        touch[(1,)](out, torch.empty_like(out))
        return out
