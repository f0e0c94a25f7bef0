"""passes on the product of PyTorch, which it reaches by its address

expect: refused
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(64, 64), torch.randn(64, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def passed_on(table, out_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    source = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + i, tl.load(source + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        product = a @ b
        table = torch.tensor([product.data_ptr()], device=a.device)
        out = torch.empty_like(product)
        passed_on[(triton.cdiv(out.numel(), 256),)](table, out, out.numel(), B=256)
        return out
