"""sine of a strided view, with strides as arguments that may be one

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(x[:, ::2])


def get_inputs():
    return [torch.randn(200, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sin_kernel(in_ptr, out_ptr, s0, s1, N, n_elements, BLOCK_SIZE: "tl.constexpr"):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(in_ptr + (offsets // N) * s0 + (offsets % N) * s1, mask=mask)
    tl.store(out_ptr + offsets, tl.sin(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x[:, ::2]
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        n = out.numel()
        sin_kernel[(triton.cdiv(n, 512),)](x, out, x.stride(0), x.stride(1), x.shape[1], n, BLOCK_SIZE=512)
        return out
