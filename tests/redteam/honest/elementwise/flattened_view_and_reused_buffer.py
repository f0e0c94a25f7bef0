"""flattened view in, reshaped out, reused output buffer kept on the module

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
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = None

    def forward(self, x):
        flat = x.reshape(-1)
        if self.buffer is None or self.buffer.numel() != flat.numel():
            self.buffer = torch.empty(flat.numel(), dtype=x.dtype, device=x.device)
        affine_kernel[(triton.cdiv(flat.numel(), 1024),)](flat, self.buffer, flat.numel(), BLOCK=1024)
        return self.buffer.view(x.shape)
