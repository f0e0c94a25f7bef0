"""group norm with a float eps cast in the kernel and two masks joined by `and`

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16, 12, 9, 7)]


def get_init_inputs():
    return [4, 12]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_kernel(X, Y, W, B, group_size, C, HW, num_groups, eps, BLOCK_G: tl.constexpr, BLOCK_HW: tl.constexpr):
    pid = tl.program_id(0)
    group = pid % num_groups
    num_elements = group_size * HW
    group_offset = tl.arange(0, BLOCK_G)
    hw_offset = tl.arange(0, BLOCK_HW)
    wb_offset = group * group_size + group_offset
    wb_mask = wb_offset < C
    xy_offset = pid * num_elements + group_offset[:, None] * HW + hw_offset[None, :]
    xy_mask = (group_offset[:, None] < group_size) and (hw_offset[None, :] < HW)
    x = tl.load(X + xy_offset, mask=xy_mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / num_elements
    x = tl.where(xy_mask, x - mean, 0.0)
    var = tl.sum(x * x) / num_elements
    rstd = tl.rsqrt(var + eps.to(tl.float32))
    w = tl.load(W + wb_offset, mask=wb_mask, other=0.0)[:, None]
    b = tl.load(B + wb_offset, mask=wb_mask, other=0.0)[:, None]
    tl.store(Y + xy_offset, x * rstd * w + b, mask=xy_mask)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        x = x.contiguous()
        N, C, H, W = x.shape
        G = self.norm.num_groups
        y = torch.empty_like(x)
        group_norm_kernel[(N * G,)](
            x,
            y,
            self.norm.weight,
            self.norm.bias,
            C // G,
            C,
            H * W,
            G,
            self.norm.eps,
            BLOCK_G=triton.next_power_of_2(C // G),
            BLOCK_HW=triton.next_power_of_2(H * W),
        )
        return y
