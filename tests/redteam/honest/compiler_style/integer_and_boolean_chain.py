"""comparisons and bitwise operators between int1 tensors, as a compiler lowers logical operators

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return ((a > 0) & (b <= 3)) | (a == b)


def get_inputs():
    return [torch.randint(-5, 6, (180, 70)), torch.randint(-5, 6, (180, 70))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_logical_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tmp1 = tl.load(in_ptr1 + xindex, xmask)
    tmp2 = tl.full([1], 0, tl.int64)
    tmp3 = tmp0 > tmp2
    tmp4 = tl.full([1], 3, tl.int64)
    tmp5 = tmp1 <= tmp4
    tmp6 = tmp3 & tmp5
    tmp7 = tmp0 == tmp1
    tmp8 = tmp6 | tmp7
    tl.store(out_ptr0 + xindex, tmp8, xmask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_strided(a.shape, a.stride(), dtype=torch.bool, device=a.device)
        n = a.numel()
        triton_poi_fused_logical_0[(triton.cdiv(n, 1024),)](a, b, out, n, XBLOCK=1024)
        return out
