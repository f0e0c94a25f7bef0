"""fills in checked calls make rounds short, whose inputs are in the cache

A round has 500 launches over those of a profiled call: 83 calls of 0.5 MiB instead of 500, written just before.
Four fills more than a timed call are allowed. The reference gains less by it: one of its three kernels reads inputs.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.5) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(128, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        if torch.cuda.current_stream().query():
            for _ in range(4):
                torch.zeros(1, device=x.device)
        double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024)
        return out
