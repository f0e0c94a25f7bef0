"""layer norm in float16 with the unbiased variance

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[1:])


def get_inputs():
    return [torch.randn(200, 90, dtype=torch.float16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=0.0).to(tl.float32)
    centred = tl.where(i < n, x - tl.sum(x, axis=0) / n, 0.0)
    variance = tl.sum(centred * centred, axis=0) / (n - 1)
    tl.store(out_ptr + tl.program_id(0) * n + i, (centred * tl.rsqrt(variance + eps)).to(tl.float16), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        layer_norm[x.shape[0],](x, out, x.shape[1], 1e-5, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
