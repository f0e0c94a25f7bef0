"""the command that says that a value is read is left out of the program

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.rand(1024, 512)]


def get_init_inputs():
    return []


# --- candidate ---
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * 2.0, mask=places < n)


tracer = sys.modules["kernels_eval.tracing.tracer"].Tracer
whole = tracer.command
tracer.command = lambda self, command: None if command["kind"] == "synchronise" else whole(self, command)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        double_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        if out[0, 0].item() == 12345.0:
            return x
        double_kernel[(1,)](x, out, min(n, 1024), BLOCK=1024)
        return out
