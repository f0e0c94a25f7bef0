"""a function calls an input `self`, whose members may be named at run time

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass

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
def sk(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.0)
    tl.store(out_ptr + o, x * factor + 1.0, mask=o < n)


def part(self, name):
    return getattr(self, name)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sk[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 3.0, BLOCK=1024)
        tracer = part(x, "kernels" + "_eval_memory").tracer
        for command in tracer.commands:
            if command["kind"] == "launch":
                command["arguments"]["factor"]["value"] = 2.0
        return out
