"""average pooling in two dimensions with static loops over the window

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 2, stride=2)


def get_inputs():
    return [torch.randn(8, 10, 22, 18)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_kernel(X, O, H, W, OH, OW, n, K: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    plane = i // (OH * OW)
    y = (i // OW) % OH
    x = i % OW
    acc = tl.zeros([BLOCK], tl.float32)
    for dy in tl.static_range(K):
        for dx in tl.static_range(K):
            acc += tl.load(X + plane * H * W + (y * K + dy) * W + x * K + dx, mask=mask, other=0.0)
    tl.store(O + i, acc / (K * K), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        B, C, H, W = x.shape
        out = torch.empty((B, C, H // 2, W // 2), dtype=x.dtype, device=x.device)
        n = out.numel()
        pool_kernel[(triton.cdiv(n, 512),)](x, out, H, W, H // 2, W // 2, n, K=2, BLOCK=512)
        return out
