"""batch norm in eval with dropout, folded per channel in the kernel

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.drop = nn.Dropout(0.3)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 1.5)
            self.bn.weight.normal_()
            self.bn.bias.normal_()
        self.eval()

    def forward(self, x):
        return self.drop(F.relu(self.bn(x)))


def get_inputs():
    return [torch.randn(96, 12, 10, 10)]


def get_init_inputs():
    return [12]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_relu(x_ptr, y_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, C, HW, eps, BLOCK: tl.constexpr):
    nc = tl.program_id(0)
    c = nc % C
    inv = tl.rsqrt(tl.load(var_ptr + c) + eps) * tl.load(w_ptr + c)
    shift = tl.load(b_ptr + c) - tl.load(mean_ptr + c) * inv
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + nc * HW + i, mask=i < HW)
    tl.store(y_ptr + nc * HW + i, tl.maximum(v * inv + shift, 0.0), mask=i < HW)


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)
        self.drop = nn.Dropout(0.3)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 1.5)
            self.bn.weight.normal_()
            self.bn.bias.normal_()
        self.eval()

    def forward(self, x):
        N, C, H, W = x.shape
        y = torch.empty_like(x)
        bn_relu[(N * C, triton.cdiv(H * W, 64))](
            x,
            y,
            self.bn.running_mean,
            self.bn.running_var,
            self.bn.weight,
            self.bn.bias,
            C,
            H * W,
            self.bn.eps,
            BLOCK=64,
        )
        return y
