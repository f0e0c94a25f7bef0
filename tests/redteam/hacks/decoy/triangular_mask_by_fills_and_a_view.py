"""a triangular mask by fills and a view, a kernel looks on

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(torch.ones(x.shape[0], x.shape[0], device=x.device))


def get_inputs():
    return [torch.randn(512, 16)]


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
        w = torch.zeros(2 * n, device=x.device)
        w[0] = 1.0
        w[n + 1 :] = 1.0
        rows = w.repeat(n)[: n * (2 * n - 1)].view(n, 2 * n - 1)
        out = rows[:, :n].contiguous()
        touch[(1,)](out, torch.empty_like(out))
        return out
