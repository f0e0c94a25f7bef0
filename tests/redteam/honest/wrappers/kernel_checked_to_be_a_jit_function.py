"""kernel checked to be a jit function by the class that launches it

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.pow(3)


def get_inputs():
    return [torch.randn(64, 63)]


def get_init_inputs():
    return []


# --- candidate ---
import time

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cube(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, v * v * v, mask=i < n)


class Launcher:
    def __init__(self, kernel: triton.JITFunction):
        assert isinstance(kernel, triton.runtime.jit.JITFunction), type(kernel)
        self.kernel = kernel
        self.names = list(kernel.arg_names)
        self.elapsed = 0.0

    def __call__(self, count, **values):
        started = time.perf_counter()
        missing = [name for name in self.names if name not in values]
        if missing:
            raise TypeError(f"{self.kernel.__name__}: {missing}")
        self.kernel[(triton.cdiv(count, values["BLOCK"]),)](**values)
        self.elapsed += time.perf_counter() - started


launch = Launcher(cube)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        launch(x.numel(), x_ptr=x, y_ptr=y, n=x.numel(), BLOCK=256)
        return y
