"""one hot by a block of zeros a barrier and one more store

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.one_hot(x, 32).float()


def get_inputs():
    return [torch.randint(0, 32, (256,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def one_hot(x_ptr, o_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    tl.store(o_ptr + row * C + tl.arange(0, C), tl.zeros([C], tl.float32))
    tl.debug_barrier()
    tl.store(o_ptr + row * C + tl.load(x_ptr + row), 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 32, device=x.device)
        one_hot[(x.shape[0],)](x, out, C=32)
        return out
