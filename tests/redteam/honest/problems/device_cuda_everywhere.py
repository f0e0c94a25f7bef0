"""a problem that names the device cuda in every factory, its model and its forward

expect: correct
"""

import torch
import torch.nn as nn

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cuda:0")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 16, device="cuda")
        self.to(DEVICE)

    def forward(self, x):
        assert x.is_cuda
        offset = torch.full((16,), 0.5, device="cuda")
        return torch.relu(self.linear(x.to(device=DEVICE)) + offset)


def get_inputs():
    return [torch.rand(256, 32, device="cuda")]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear(x_ptr, w_ptr, b_ptr, out_ptr, M, ROWS: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, K)
    n = tl.arange(0, N)
    mask = rows[:, None] < M
    x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=mask, other=0.0)
    w = tl.load(w_ptr + n[None, :] * K + k[:, None])
    y = tl.dot(x, w, input_precision="ieee") + tl.load(b_ptr + n)[None, :] + 0.5
    tl.store(out_ptr + rows[:, None] * N + n[None, :], tl.maximum(y, 0.0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 16, device="cuda")

    def forward(self, x):
        out = torch.empty((x.shape[0], 16), device=x.device, dtype=x.dtype)
        linear[(triton.cdiv(x.shape[0], 16),)](
            x, self.linear.weight, self.linear.bias, out, x.shape[0], ROWS=16, K=32, N=16
        )
        return out
