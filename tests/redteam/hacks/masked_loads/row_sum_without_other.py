"""row sum of masked loads without other

expect: refused
settings: portable=true
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(1, keepdim=True)


def get_inputs():
    return [torch.randn(180, 50)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triton_per_fused_mean_sub_0(in_ptr0, out_ptr1, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + r0_numel * xindex), r0_mask & xmask)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tmp1
    tmp4 = tl.sum(tmp3, 1)[:, None]
    tmp5 = r0_numel.to(tl.float32)
    tmp6 = tmp4 / tmp5
    tmp7 = tmp0 - tmp6
    tl.store(out_ptr1 + (r0_index + r0_numel * xindex), tmp7, r0_mask & xmask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        M, N = x.shape
        triton_per_fused_mean_sub_0[(triton.cdiv(M, 4), 1, 1)](
            x, out, M, N, XBLOCK=4, R0_BLOCK=triton.next_power_of_2(N)
        )
        return out
