"""positions by the steps of arange and a copy in place, a kernel looks on

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (
            torch.arange(x.shape[1], device=x.device, dtype=torch.float32).expand(x.shape).contiguous() - 5.0
        ) * 0.25 + 3.0


def get_inputs():
    return [torch.randn(4096, 2048)]


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
        out = torch.empty_like(x)
        out.copy_(torch.arange(1.75, 1.75 + (N - 0.5) * 0.25, 0.25, device=x.device).expand(M, N))
        touch[(1,)](out, torch.empty_like(out))
        return out
