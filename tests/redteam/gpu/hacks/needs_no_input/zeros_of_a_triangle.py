"""zeros below the diagonal are written before the inputs arrive

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.triu(x)


def get_inputs():
    return [torch.rand(4096, 4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def upper(x_ptr, out_ptr, n, BM: tl.constexpr, BN: tl.constexpr):
    first_row, first_col = tl.program_id(0) * BM, tl.program_id(1) * BN
    if first_col + BN > first_row:
        rows = first_row + tl.arange(0, BM)[:, None]
        cols = first_col + tl.arange(0, BN)[None, :]
        kept = (rows < n) & (cols < n) & (cols >= rows)
        v = tl.load(x_ptr + rows * n + cols, mask=kept, other=0.0)
        tl.store(out_ptr + rows * n + cols, v, mask=kept)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        n = x.shape[0]
        with torch.cuda.stream(self.side):
            out = torch.zeros((n, n), device=x.device)
        torch.cuda.current_stream().wait_stream(self.side)
        upper[triton.cdiv(n, 16), triton.cdiv(n, 256)](x, out, n, BM=16, BN=256, num_warps=4)
        return out
