"""the stride of the output's rows is another one

expect: refused
settings: full_size_share=0.0
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x).t().contiguous()


def get_inputs():
    return [torch.randn(1024, 32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def transposed_exp(x_ptr, out_ptr, D, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + cols * stride + row, tl.exp(x), mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros((x.shape[1], x.shape[0]), device=x.device, dtype=x.dtype)
        transposed_exp[(x.shape[0],)](x, out, x.shape[1], min(x.shape[0], 1000), BLOCK=32)
        return out
