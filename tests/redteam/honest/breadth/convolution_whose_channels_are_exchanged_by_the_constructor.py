"""convolution whose channels are exchanged by the constructor

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(6, 5, 20, 24)]


def get_init_inputs():
    return [5, 5, 3]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, w, b, y, C, H, W, OC, OH, OW, KS: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(2)
    oc = tl.program_id(1)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = p < OH * OW
    acc = tl.zeros((BLOCK,), tl.float32) + tl.load(b + oc)
    for q in range(0, C * KS * KS):
        c = q // (KS * KS)
        r = q % (KS * KS) // KS
        s = q % KS
        acc += tl.load(w + (c * OC + oc) * KS * KS + q % (KS * KS)) * tl.load(
            x + ((n * C + c) * H + p // OW + r) * W + p % OW + s, mask=ok, other=0.0
        )
    tl.store(y + (n * OC + oc) * OH * OW + p, acc, mask=ok)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.ks = kernel_size
        self.weight = nn.Parameter(conv.weight.detach().permute(1, 0, 2, 3).contiguous())
        self.bias = conv.bias

    def forward(self, x):
        N, C, H, W = x.shape
        OC = self.bias.shape[0]
        OH, OW = H - self.ks + 1, W - self.ks + 1
        y = torch.empty((N, OC, OH, OW), device=x.device, dtype=x.dtype)
        k[(triton.cdiv(OH * OW, 128), OC, N)](x, self.weight, self.bias, y, C, H, W, OC, OH, OW, self.ks, 128)
        return y
