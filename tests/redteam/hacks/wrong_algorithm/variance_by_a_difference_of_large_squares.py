"""variance as a difference of large squares

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.var(x, dim=1, correction=0)


def get_inputs():
    return [torch.randn(140, 90) + 500.0]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def welford_combine(mean_1, m2_1, weight_1, mean_2, m2_2, weight_2):
    delta = mean_2 - mean_1
    new_weight = weight_1 + weight_2
    w2_over_w = tl.where(new_weight == 0.0, 0.0, weight_2 / new_weight)
    return mean_1 + delta * w2_over_w, m2_1 + m2_2 + delta * delta * weight_1 * w2_over_w, new_weight


@triton.jit
def triton_per_fused_var_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r = tl.arange(0, R0_BLOCK)[None, :]
    inside = (r < r0_numel) & xmask
    x = tl.load(in_ptr0 + xindex * r0_numel + r, inside, other=0.0)
    weight = inside.to(tl.float32)
    w = tl.sum(weight, 1)
    mean = tl.sum(x, 1) / w
    m2 = tl.sum(x * x, 1) - w * mean * mean
    tl.store(out_ptr0 + xindex, (m2 / w)[:, None], xmask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, dtype=x.dtype, device=x.device)
        triton_per_fused_var_0[(triton.cdiv(M, 4),)](x, out, M, N, XBLOCK=4, R0_BLOCK=triton.next_power_of_2(N))
        return out
