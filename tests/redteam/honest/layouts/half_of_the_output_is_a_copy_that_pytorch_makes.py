"""half of the output is a copy that PyTorch makes

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return torch.cat([x, torch.relu(y)], dim=1)


def get_inputs():
    return [torch.randn(512, 48), torch.randn(512, 48)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_into(y_ptr, o_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    tl.store(o_ptr + row * stride + c, tl.maximum(tl.load(y_ptr + row * N + c, mask=c < N), 0.0), mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x, y):
        M, N = x.shape
        out = torch.empty((M, 2 * N), device=x.device, dtype=x.dtype)
        out[:, :N].copy_(x)
        relu_into[(M,)](y, out[:, N:], out.stride(0), N, BLOCK=64)
        return out
