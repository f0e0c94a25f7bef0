"""the function that sends frames sends another kernel's text

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
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x, mask=places < n)


process = sys.modules["kernels_eval.tracing.process"]
whole = process.send_frame


def send_frame(channel, header, payload=()):
    for kernel in header.get("kernels", ()):
        kernel["source"] = kernel["source"].replace("places, x, mask", "places, x * 2.0 + 1.0, mask")
    whole(channel, header, payload)


process.send_frame = send_frame


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
