"""one-hot rows, 32 MiB

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, i):
        return torch.zeros(i.shape[0], 2048, device=i.device).scatter_(1, i[:, None], 1.0)


def get_inputs():
    return [torch.randint(0, 2048, (4096,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def one_hot(i_ptr, out_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    at = tl.load(i_ptr + row)
    k = tl.arange(0, C)
    tl.store(out_ptr + row.to(tl.int64) * C + k, tl.where(k == at, 1.0, 0.0))


class ModelNew(nn.Module):
    def forward(self, i):
        out = torch.empty((i.shape[0], 2048), device=i.device)
        one_hot[i.shape[0],](i, out, C=2048, num_warps=4)
        return out
