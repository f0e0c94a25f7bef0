"""mixed: cuDNN convolution kept, relu and bias fused in one kernel, in place on the convolution's output

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Convolution, ReLU, extra bias"""

    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        x = self.conv(x)
        x = torch.relu(x)
        return x + self.bias


def get_inputs():
    return [torch.randn(96, 3, 16, 16)]


def get_init_inputs():
    return [3, 8, 3, (8, 1, 1)]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_bias_(y_ptr, b_ptr, n, C, HW, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = (i // HW) % C
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(y, 0.0) + tl.load(b_ptr + c, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        y = self.conv(x)
        N, C, H, W = y.shape
        relu_bias_[(triton.cdiv(y.numel(), 1024),)](y, self.bias, y.numel(), C, H * W, BLOCK=1024)
        return y
