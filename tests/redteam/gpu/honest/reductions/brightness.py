"""the mean of images of bytes, times a gain

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return x.to(torch.float16).mean(dim=1) * w


def get_inputs():
    return [torch.randint(0, 256, (512, 262144), dtype=torch.uint8), torch.randn(512, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_mean(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        i = first + k
        total += tl.load(x_ptr + start + i, mask=i < n, other=0).to(tl.float32)
    mean = (tl.sum(total, axis=0) / (n)).to(tl.float16)
    tl.store(out_ptr + row, (mean * tl.load(w_ptr + row)).to(tl.float16))


class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty(x.shape[0], device=x.device, dtype=torch.float16)
        row_mean[x.shape[0],](x, w, out, x.shape[1], BLOCK=8192, num_warps=16)
        return out
