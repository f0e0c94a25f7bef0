"""a number that two kernels share: the right one runs, the fast one is timed

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
import json
import linecache

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fast_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, 1.0, mask=places < n)


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * 2.0 + 1.0, mask=places < n)


whole = json.dumps
kept = []


def dumps(value, **named):
    if isinstance(value, dict) and value.get("kind") == "trace":
        kept.extend(value["kernels"])
        if any(command["kind"] == "launch" and command["grid"][0] > 9 for command in value["commands"]):
            line = fast_kernel.fn.__code__.co_firstlineno + 1
            text = "".join(linecache.getlines("kernel.py")[line - 1 : line + 2])
            value["kernels"] = [kept[0] | {"name": "fast_kernel", "source": text, "line": line}]
    return whole(value, **named)


json.dumps = dumps


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
