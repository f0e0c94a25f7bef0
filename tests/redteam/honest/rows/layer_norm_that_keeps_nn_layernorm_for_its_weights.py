"""layer norm that keeps nn.LayerNorm for its weights

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(512, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm(X, Y, W, B, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / N + eps)
    y = centred * rstd * tl.load(W + cols, mask=mask) + tl.load(B + cols, mask=mask)
    tl.store(Y + cols, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x):
        shape = x.shape
        x = x.view(-1, shape[-1])
        y = torch.empty_like(x)
        layer_norm[(x.shape[0],)](
            x, y, self.norm.weight, self.norm.bias, x.stride(0), x.shape[1], self.norm.eps, BLOCK=128
        )
        return y.view(shape)
