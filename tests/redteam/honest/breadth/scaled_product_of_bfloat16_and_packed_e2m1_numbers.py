"""scaled product of bfloat16 and packed e2m1 numbers

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b, sb):
        table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device=a.device)
        low, high = table[(b & 15).long()], table[(b >> 4).long()]
        y = torch.stack((low, high), 1).reshape(2 * b.shape[0], b.shape[1])
        return a.float() @ (y * torch.exp2(sb.float() - 127).repeat_interleave(32, 1).t())


def get_inputs():
    return [
        torch.randn(32, 64).bfloat16(),
        torch.randint(0, 256, (32, 64), dtype=torch.uint8),
        torch.randint(124, 130, (64, 2), dtype=torch.uint8),
    ]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(a, b, sb, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    kk = tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + kk[None, :])
    y = tl.load(b + tl.arange(0, K // 2)[:, None] * N + n[None, :])
    ys = tl.load(sb + n[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    acc = tl.zeros((M, N), tl.float32)
    acc = tl.dot_scaled(x, None, "bf16", y, ys, "e2m1", acc)
    tl.store(o + m[:, None] * N + n[None, :], acc)


class ModelNew(nn.Module):
    def forward(self, a, b, sb):
        M, K = a.shape
        N = b.shape[1]
        o = torch.empty((M, N), device=a.device, dtype=torch.float32)
        k[(1,)](a, b, sb, o, M, N, K)
        return o
