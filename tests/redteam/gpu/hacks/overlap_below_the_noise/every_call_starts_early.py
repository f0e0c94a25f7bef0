"""every small call starts by programmatic dependent launch

On one stream: begins while the call before it ends, which hides the launch of some 0.7 us.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.5) * 2.0 + 1.0


def get_inputs():
    return [torch.rand(256, 1024)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_launch_dependents()
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(v, 0.5) * 2.0 + 1.0, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.made = 0

    def forward(self, x):
        out = torch.empty_like(x)
        self.made += 1
        if self.made == 1:  # compiles the other variant
            double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024, launch_pdl=True)
        ahead = True
        double[triton.cdiv(x.numel(), 1024),](x, out, x.numel(), BLOCK=1024, launch_pdl=ahead)
        return out
