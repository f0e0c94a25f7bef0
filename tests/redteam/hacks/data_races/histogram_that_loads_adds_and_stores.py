"""histogram that loads adds and stores

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bincount(x.long(), minlength=16)


def get_inputs():
    return [torch.randint(0, 16, (4096,), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count(x_ptr, o_ptr, n):
    p = tl.program_id(0)
    bin = tl.load(x_ptr + p)
    tl.store(o_ptr + bin, tl.load(o_ptr + bin) + 1)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros(16, dtype=torch.int64, device=x.device)
        count[(x.numel(),)](x, out, x.numel())
        return out
