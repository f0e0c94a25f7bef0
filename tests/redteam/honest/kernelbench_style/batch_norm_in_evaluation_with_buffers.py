"""batch norm in evaluation by its buffers, folded into a scale and a shift in the kernel

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bn = nn.BatchNorm2d(features)
        self.bn.running_mean.uniform_(-1, 1)
        self.bn.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        return self.bn(x)


def get_inputs():
    return [torch.randn(10, 12, 9, 8)]


def get_init_inputs():
    return [12]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_kernel(X, Mean, Var, W, B, O, C, HW, eps, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    c = plane % C
    scale = tl.load(W + c) / tl.sqrt(tl.load(Var + c) + eps)
    shift = tl.load(B + c) - tl.load(Mean + c) * scale
    i = tl.arange(0, BLOCK)
    x = tl.load(X + plane * HW + i, mask=i < HW)
    tl.store(O + plane * HW + i, x * scale + shift, mask=i < HW)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bn = nn.BatchNorm2d(features)
        self.bn.running_mean.uniform_(-1, 1)
        self.bn.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        B, C, H, W = x.shape
        out = torch.empty_like(x)
        bn = self.bn
        bn_kernel[(B * C,)](
            x,
            bn.running_mean,
            bn.running_var,
            bn.weight,
            bn.bias,
            out,
            C,
            H * W,
            bn.eps,
            BLOCK=triton.next_power_of_2(H * W),
        )
        return out
