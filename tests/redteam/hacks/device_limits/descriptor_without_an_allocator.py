"""descriptor without an allocator

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x * 2 + 1


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, M, N: tl.constexpr):
    d = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[16, 64])
    e = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[16, 64])
    a = tl.program_id(0) * 16
    b = tl.program_id(1) * 64
    e.store([a, b], d.load([a, b]) * 2 + 1)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.shape[0], 16), 4)](x, o, x.shape[0], N=256)
        return o
