"""softmax of sequences of different lengths by a tensor of offsets

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, ends):
        i = torch.arange(x.shape[1])[None, :]
        x = torch.where(i < ends[:, None], x, float("-inf"))
        return torch.nan_to_num(torch.softmax(x, dim=1))


def get_inputs():
    return [torch.randn(150, 90), torch.randint(1, 90, (150,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def token_softmax_kernel(X, Ends, O, N, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    length = tl.load(Ends + batch)
    col = tl.arange(0, BLOCK)
    row = tl.load(X + batch * N + col, mask=col < length, other=-float("inf")).to(tl.float32)
    e = tl.exp(row - tl.max(row, axis=0))
    e = tl.where(col < length, e, 0.0)
    tl.store(O + batch * N + col, e / tl.sum(e, axis=0), mask=col < N)


class ModelNew(nn.Module):
    def forward(self, x, ends):
        M, N = x.shape
        o = torch.empty_like(x)
        token_softmax_kernel[(M,)](x, ends, o, N, BLOCK=triton.next_power_of_2(N))
        return o
