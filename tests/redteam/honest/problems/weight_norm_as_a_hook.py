"""a weight norm of the older form, whose weight is no parameter and is computed in each call

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(nn.Linear(inputs, outputs))

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(64, 48)]


def get_init_inputs():
    return [48, 32]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normed_linear(x_ptr, g_ptr, v_ptr, bias_ptr, out_ptr, K, N, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, BLOCK)
    v = tl.load(v_ptr + column * K + k, mask=k < K, other=0.0)
    x = tl.load(x_ptr + row * K + k, mask=k < K, other=0.0)
    scale = tl.load(g_ptr + column) / tl.sqrt(tl.sum(v * v, axis=0))
    tl.store(out_ptr + row * N + column, tl.sum(x * v, axis=0) * scale + tl.load(bias_ptr + column))


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = torch.nn.utils.weight_norm(nn.Linear(inputs, outputs))

    def forward(self, x):
        linear = self.linear
        out = torch.empty(x.shape[0], linear.out_features, device=x.device, dtype=x.dtype)
        grid = (x.shape[0], linear.out_features)
        normed_linear[grid](x, linear.weight_g, linear.weight_v, linear.bias, out, x.shape[1], grid[1], BLOCK=64)
        return out
