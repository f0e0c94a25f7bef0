"""reversed scan that begins in what lies past the row

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumprod(x.flip(1), dim=1).flip(1)


def get_inputs():
    return [torch.rand(150, 40) * 0.4 + 0.8]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _triton_helper_fn_mul0(arg0_0, arg1_0):
    tmp0 = arg0_0 * arg1_0
    return tmp0


@triton.jit
def triton_per_fused_cumprod_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_1 = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_1 < r0_numel
    tmp0 = tl.load(
        in_ptr0 + (r0_1 + r0_numel * xindex),
        r0_mask & xmask,
    )
    tmp1 = tmp0.to(tl.float32)
    tmp2 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])
    (tmp3,) = tl.associative_scan((tmp2,), 1, _triton_helper_fn_mul0, reverse=True)
    tl.store(out_ptr0 + (r0_1 + r0_numel * xindex), tmp3, r0_mask & xmask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        M, N = x.shape
        triton_per_fused_cumprod_0[(triton.cdiv(M, 4),)](x, out, M, N, XBLOCK=4, R0_BLOCK=triton.next_power_of_2(N))
        return out
