"""average pooling in 3-D with padding, flat index decoded by // and %

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.avg_pool = nn.AvgPool3d(kernel_size=kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.avg_pool(x)


def get_inputs():
    return [torch.randn(72, 2, 6, 8, 8)]


def get_init_inputs():
    return [3, 2, 1]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def avgpool3d_kernel(
    x_ptr, y_ptr, n, D, H, W, OD, OH, OW, K: tl.constexpr, S: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = i < n
    ow = i % OW
    oh = (i // OW) % OH
    od = (i // (OW * OH)) % OD
    nc = i // (OW * OH * OD)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kd in range(K):
        for kh in range(K):
            for kw in range(K):
                d = od * S - P + kd
                h = oh * S - P + kh
                w = ow * S - P + kw
                ok = live & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                acc += tl.load(x_ptr + ((nc * D + d) * H + h) * W + w, mask=ok, other=0.0)
    tl.store(y_ptr + i, acc / (K * K * K), mask=live)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride=None, padding=0):
        super().__init__()
        self.k, self.s, self.p = kernel_size, stride or kernel_size, padding

    def forward(self, x):
        N, C, D, H, W = x.shape
        out = lambda v: (v + 2 * self.p - self.k) // self.s + 1
        y = torch.empty((N, C, out(D), out(H), out(W)), device=x.device, dtype=x.dtype)
        n = y.numel()
        avgpool3d_kernel[(triton.cdiv(n, 512),)](
            x, y, n, D, H, W, *y.shape[2:], K=self.k, S=self.s, P=self.p, BLOCK=512
        )
        return y
