"""commands forged: a library operator written into the program

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x) * 2.0 + 1.0
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(1024, 100)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.maximum(x, 0.0) * 2.0 + 1.0
    x = tl.where(mask, x, -float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    x = x / tl.sum(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x, mask=mask)


@triton.jit
def nothing(x_ptr):
    pass


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        t = x.kernels_eval_memory.tracer
        view = t.view_of(x)
        out = torch.empty_like(x)
        t.command(
            {
                "kind": "operate",
                "name": "_softmax",
                "overload": "default",
                "arguments": [view, {"kind": "plain", "value": 1}, {"kind": "plain", "value": False}],
                "named": {},
                "results": [t.view_of(out)],
            }
        )
        nothing[(1,)](x)
        return out
