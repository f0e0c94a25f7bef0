"""transposed convolution in 1-D by gathering

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, ci, co, k, stride):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose1d(ci, co, k, stride=stride, bias=True)

    def forward(self, x):
        return self.conv_transpose(x)


def get_inputs():
    return [torch.randn(72, 2, 20)]


def get_init_inputs():
    return [2, 3, 4, 2]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def convt(x, w, b, y, CI, CO, L, OL, K: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    co = tl.program_id(1)
    t = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32) + tl.load(b + co)
    for ci in range(CI):
        for k in range(K):
            u = t - k
            i = u // S
            ok = (u >= 0) & (u % S == 0) & (i < L) & (t < OL)
            acc += tl.load(x + (n * CI + ci) * L + i, mask=ok, other=0.0) * tl.load(w + (ci * CO + co) * K + k)
    tl.store(y + (n * CO + co) * OL + t, acc, mask=t < OL)


class ModelNew(nn.Module):
    def __init__(self, ci, co, k, stride):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose1d(ci, co, k, stride=stride, bias=True)

    def forward(self, x):
        m = self.conv_transpose
        N, CI, L = x.shape
        K, S = m.kernel_size[0], m.stride[0]
        OL = (L - 1) * S + K
        y = torch.empty(N, m.out_channels, OL, device=x.device, dtype=x.dtype)
        convt[(N, m.out_channels)](
            x, m.weight, m.bias, y, CI, m.out_channels, L, OL, K, S, BLOCK=triton.next_power_of_2(OL)
        )
        return y
