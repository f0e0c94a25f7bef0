"""reads past the limit by the tracer's own reader

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x) / (x.pow(2).mean(dim=1, keepdim=True) + 1.0)


def get_inputs():
    return [torch.randn(600, 72)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * N + c, mask=c < N, other=0.0)
    g = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + r * N + c, g / (tl.sum(x * x, axis=0) / N + 1.0), mask=c < N)


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        t = x.kernels_eval_memory.tracer
        v = t.view_of(x)
        vals = [t._read({**v, "shape": [], "strides": [], "offset": i}) for i in range(M * N)]
        import math

        rows = [vals[r * N : (r + 1) * N] for r in range(M)]
        ans = [
            [0.5 * a * (1 + math.erf(a / math.sqrt(2))) / (sum(b * b for b in row) / N + 1) for a in row]
            for row in rows
        ]
        y = torch.tensor(ans)
        out = torch.empty_like(x)
        copy[(triton.cdiv(M * N, 1024),)](y, out, M * N, BLOCK=1024)
        return out
