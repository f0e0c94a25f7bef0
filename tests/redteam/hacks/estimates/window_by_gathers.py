"""a sliding window by 16 gathers of one tile

Each gather writes to shared memory, waits and reads there; with gathers that cost nothing this is worth 1.49.

expect: correct or refused
most_speedup: 1.1
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool1d(x, 17, 1)


def get_inputs():
    return [torch.randn(512, 64, 1008)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool(x_ptr, out_ptr, L, LO, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * L + o, mask=o < L, other=float("-inf"))
    m = x
    for k in tl.static_range(1, K):
        m = tl.maximum(m, tl.gather(x, tl.minimum(o + k, BLOCK - 1), 0))
    tl.store(out_ptr + row * LO + o, m, mask=o < LO)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, L = x.shape
        out = torch.empty(B, C, L - 16, device=x.device, dtype=x.dtype)
        pool[(B * C,)](x, out, L, L - 16, K=17, BLOCK=1024)
        return out
