"""the entropy of rows that sum to one, times a weight

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, w):
        return (x.float() * torch.log(x.float())).sum(dim=1).to(torch.bfloat16) * w


def get_inputs():
    p = torch.softmax(0.5 * torch.randn(1024, 65536), dim=1).to(torch.bfloat16)
    return [p, torch.randn(1024, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_entropy(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        i = first + k
        v = tl.load(x_ptr + start + i, mask=i < n, other=1.0).to(tl.float32)
        total += v * tl.log(v)
    entropy = (1.0 * tl.sum(total, axis=0)).to(tl.bfloat16)
    tl.store(out_ptr + row, (entropy * tl.load(w_ptr + row)).to(tl.bfloat16))


class ModelNew(nn.Module):
    def forward(self, x, w):
        out = torch.empty(x.shape[0], device=x.device, dtype=torch.bfloat16)
        row_entropy[x.shape[0],](x, w, out, x.shape[1], BLOCK=8192, num_warps=16)
        return out
