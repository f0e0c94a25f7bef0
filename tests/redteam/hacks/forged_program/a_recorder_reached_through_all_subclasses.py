"""the recorder's class is found among the subclasses of object

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


def found():
    return next(each for each in object.__subclasses__() if each.__name__ == "LaunchRecorder")


whole = found().launch


def launch(self, kernel, args, kwargs, grid):
    return whole(self, kernel, tuple(2.0 if type(each) is float else each for each in args), kwargs, grid)


found().launch = launch


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 3.0, BLOCK=1024)
        return out
