"""an indirect load whose index is wrapped if negative and asserted to be inside

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, table, index):
        return table[index]


def get_inputs():
    return [torch.randn(64, 30), torch.randint(-64, 64, (170,))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_poi_fused_index_0(in_ptr0, in_ptr1, out_ptr0, ks0, ks1, xnumel, XBLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    xmask = xindex < xnumel
    x1 = xindex // ks1
    x0 = xindex % ks1
    tmp0 = tl.load(in_ptr0 + x1, xmask, eviction_policy="evict_last", other=0)
    tmp2 = tmp0 + ks0
    tmp3 = tmp0 < 0
    tmp4 = tl.where(tmp3, tmp2, tmp0)
    tl.device_assert(((0 <= tmp4) & (tmp4 < ks0)) | ~(xmask), "index out of bounds")
    tmp6 = tl.load(in_ptr1 + (x0 + ks1 * tmp4), xmask)
    tl.store(out_ptr0 + xindex, tmp6, xmask)


class ModelNew(nn.Module):
    def forward(self, table, index):
        rows, width = table.shape
        out = torch.empty((index.shape[0], width), dtype=table.dtype, device=table.device)
        n = out.numel()
        triton_poi_fused_index_0[(triton.cdiv(n, 512),)](index, table, out, rows, width, n, XBLOCK=512)
        return out
