"""torch.no_grad, device guard, data_ptr asserts, requires_grad parameter, register_buffer

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [torch.randn(512, 80)]


def get_init_inputs():
    return [80, 1e-5]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms(x_ptr, w_ptr, e_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    y = x / tl.sqrt(tl.sum(x * x, axis=0) / N + tl.load(e_ptr))
    tl.store(y_ptr + row * N + c, y * tl.load(w_ptr + c, mask=c < N, other=0.0), mask=c < N)


class ModelNew(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size), requires_grad=True)
        self.register_buffer("epsilon", torch.tensor([eps], dtype=torch.float32), persistent=False)

    @torch.no_grad()
    def forward(self, x):
        if not x.is_cuda:
            x = x.cuda()
        assert x.data_ptr() % 16 == 0 and x.is_contiguous() and x.dim() == 2
        y = torch.empty(x.size(), dtype=x.dtype, device=x.device)
        with torch.cuda.device(x.device.index or 0):
            rms[(x.size(0),)](x, self.weight, self.epsilon, y, x.size(1), BLOCK=128)
        return y
