"""a diagonal by a copy into zeros, a kernel touches one element

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.diag(x)


def get_inputs():
    return [torch.randn(512)]


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
        n = x.shape[0]
        out = torch.zeros((n, n), device=x.device)
        out.diagonal().copy_(x)
        touch[(1,)](out, out)
        return out
