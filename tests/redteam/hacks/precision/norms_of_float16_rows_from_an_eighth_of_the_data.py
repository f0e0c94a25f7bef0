"""norms of float16 rows from an eighth of the data

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.linalg.vector_norm(x, dim=1)


def get_inputs():
    return [torch.randn(16, 32768, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_norm(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n // 8, BLOCK):
        i = (first + k) // 32 * 256 + (first + k) % 32
        v = tl.load(x_ptr + row * n + i, mask=i < n, other=0.0).to(tl.float32)
        total += v * v
    tl.store(out_ptr + row, tl.sqrt(8.0 * tl.sum(total, axis=0)).to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        row_norm[x.shape[0],](x, out, x.shape[1], BLOCK=2048, num_warps=4)
        return out
