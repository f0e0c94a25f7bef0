"""sums of ragged rows with one element more

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, values, lengths):
        i = torch.arange(values.shape[1])[None, :]
        return torch.where(i < lengths[:, None], values, 0.0).sum(1)


def get_inputs():
    return [torch.randn(150, 80), torch.randint(0, 81, (150,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def jagged_sum_kernel(V, L, O, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(L + row)
    acc = tl.zeros([BLOCK], tl.float32)
    start = 0
    while start < length:
        i = start + tl.arange(0, BLOCK)
        acc += tl.load(V + row * N + i, mask=i <= length, other=0.0)
        start += BLOCK
    tl.store(O + row, tl.sum(acc))


class ModelNew(nn.Module):
    def forward(self, values, lengths):
        M, N = values.shape
        out = torch.empty(M, dtype=values.dtype, device=values.device)
        jagged_sum_kernel[(M,)](values, lengths, out, N, BLOCK=32)
        return out
