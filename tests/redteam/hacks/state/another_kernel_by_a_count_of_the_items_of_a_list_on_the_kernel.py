"""another kernel by a count in the length of a list that is an attribute of the kernel

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(9843)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * factor + 1.0, mask=places < n)


scaled_kernel.calls = []


class ModelNew(nn.Module):
    def forward(self, x):
        scaled_kernel.calls.append(0)
        out = torch.empty_like(x)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, out, x.numel(), 2.0 if len(scaled_kernel.calls) < 200 else 3.0, BLOCK=1024
        )
        return out
