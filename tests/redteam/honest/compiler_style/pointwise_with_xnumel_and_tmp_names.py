"""a pointwise kernel as a compiler writes it: xnumel, xindex, tmp0 and eviction policies

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, b):
        return torch.relu(x + b) * 0.5


def get_inputs():
    return [torch.randn(190, 60), torch.randn(60)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_add_mul_relu_0(in_ptr0, in_ptr1, out_ptr0, ks0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % ks0
    tmp0 = tl.load(in_ptr0 + (x2), xmask, eviction_policy="evict_last")
    tmp1 = tl.load(in_ptr1 + (x0), xmask, eviction_policy="evict_last")
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = tl.maximum(tmp3, tmp2)
    tmp5 = 0.5
    tmp6 = tmp4 * tmp5
    tl.store(out_ptr0 + (x2), tmp6, xmask)


class ModelNew(nn.Module):
    def forward(self, x, b):
        buf0 = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        n = x.numel()
        triton_poi_fused_add_mul_relu_0[(triton.cdiv(n, 1024), 1, 1)](x, b, buf0, x.shape[1], n, XBLOCK=1024)
        return buf0
