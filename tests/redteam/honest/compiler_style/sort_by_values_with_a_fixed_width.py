"""rows sorted by tl.sort, padded with infinity

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=1, descending=True).values


def get_inputs():
    return [torch.randn(110, 45)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_per_fused_sort_0(in_ptr0, out_ptr0, r0_numel, R0_BLOCK: tl.constexpr):
    x0 = tl.program_id(0)
    r = tl.arange(0, R0_BLOCK)
    tmp0 = tl.load(in_ptr0 + x0 * r0_numel + r, r < r0_numel, other=float("-inf"))
    tmp1 = tl.sort(tmp0, 0, descending=True)
    tl.store(out_ptr0 + x0 * r0_numel + r, tmp1, r < r0_numel)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        triton_per_fused_sort_0[(x.shape[0],)](x, out, x.shape[1], R0_BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
