"""persistent programs: a grid of one for each multiprocessor, striding

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n)
        tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def forward(self, x):
        out = torch.empty_like(x)
        affine_kernel[(min(self.sms, triton.cdiv(x.numel(), 256)),)](x, out, x.numel(), BLOCK=256)
        return out
