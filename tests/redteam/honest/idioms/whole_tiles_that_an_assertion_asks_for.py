"""whole tiles that an assertion asks for

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(4096, 1000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def double_relu(X, O, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(O + i, tl.maximum(tl.load(X + i), 0.0) * 2.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        assert n % 512 == 0
        double_relu[(n // 512,)](x, out, BLOCK=512)
        return out
