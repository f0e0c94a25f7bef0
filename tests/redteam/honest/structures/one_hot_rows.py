"""one-hot rows: zeros by PyTorch, ones stored by the kernel alone

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, labels):
        return F.one_hot(labels, 24).float()


def get_inputs():
    return [torch.randint(0, 24, (512,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def put(l, y, n, C, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = tl.load(l + i, mask=i < n, other=0)
    tl.store(y + i * C + k, 1.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, labels):
        y = torch.zeros((labels.shape[0], 24), device=labels.device)
        put[(triton.cdiv(labels.shape[0], 64),)](labels, y, labels.shape[0], 24, BLOCK=64)
        return y
