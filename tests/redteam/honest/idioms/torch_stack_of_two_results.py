"""torch.stack of two results

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, gate, up):
        return torch.stack([torch.relu(gate), torch.relu(up)])


def get_inputs():
    return [torch.randn(512, 64), torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


def relu(x):
    out = torch.empty_like(x)
    relu_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK_SIZE=256)
    return out


class ModelNew(nn.Module):
    def forward(self, gate, up):
        return torch.stack([relu(gate), relu(up)], dim=0)
