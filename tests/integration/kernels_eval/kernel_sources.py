"""Problems and kernels that the judge's tests put before it."""

ROW_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        x = x * 2.0 + 1.0
        return torch.softmax(x, dim=1)
M, N = 4096, 300
def get_inputs():
    return [torch.rand(M, N)]
def get_init_inputs():
    return []
"""

HEADER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

ROW_KERNEL = (
    HEADER
    + """
@triton.jit
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = tl.maximum(x, 0.0)
    x = x * 2.0 + 1.0
    x = tl.where(mask, x, -float("inf"))
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    x = x / tl.sum(x, axis=1)[:, None]
    tl.store(out_ptr + rows * N + cols, x, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4, BLOCK=512)
        return out
"""
)

LINEAR_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.scale = nn.Parameter(torch.ones(outer))
    def forward(self, x):
        x = self.linear(x)
        x = torch.relu(x)
        return x * self.scale
def get_inputs():
    return [torch.randn(2048, 64)]
def get_init_inputs():
    return [64, 96]
"""

LINEAR_KERNEL = (
    HEADER
    + """
@triton.jit
def kernel(x_ptr, w_ptr, b_ptr, s_ptr, out_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    cols = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        x = tl.load(x_ptr + rows * K + ks[None, :], mask=(rows < M) & (ks[None, :] < K), other=0.0)
        w = tl.load(w_ptr + cols * K + ks[:, None], mask=(cols < N) & (ks[:, None] < K), other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
    acc += tl.load(b_ptr + cols, mask=cols < N, other=0.0)
    acc = tl.maximum(acc, 0.0)
    acc = acc * tl.load(s_ptr + cols, mask=cols < N, other=0.0)
    tl.store(out_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))

class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.scale = nn.Parameter(torch.ones(outer))
    def forward(self, x):
        M, K = x.shape
        N = self.linear.weight.shape[0]
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
        kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](
            x, self.linear.weight, self.linear.bias, self.scale, out, M, N, K, BM=32, BN=32, BK=32)
        return out
"""
)

TRANSPOSED_PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x, y):
        x = x + y
        return x.t().contiguous(), x.sum(dim=1)
def get_inputs():
    return [torch.randn(1024, 128), torch.randn(128)]
def get_init_inputs():
    return []
"""

TRANSPOSED_KERNEL = (
    HEADER
    + """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, sum_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (rows < M) & (cols < N)
    x = tl.load(x_ptr + rows * N + cols, mask=mask, other=0.0)
    x = x + tl.load(y_ptr + cols, mask=cols < N, other=0.0)
    x = tl.where(mask, x, 0.0)
    tl.store(out_ptr + cols * M + rows, x, mask=mask)
    line = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(sum_ptr + line, tl.sum(x, axis=1), mask=line < M)

class ModelNew(nn.Module):
    def forward(self, x, y):
        M, N = x.shape
        out = torch.empty((N, M), dtype=x.dtype, device=x.device)
        total = torch.empty((M,), dtype=x.dtype, device=x.device)
        kernel[(triton.cdiv(M, 16),)](x, y, out, total, M, N, ROWS=16, BLOCK=128)
        return out, total
"""
)


def with_forward(body: str, extra: str = "") -> str:
    """The row kernel under another forward; `body` is indented by eight spaces."""
    head = ROW_KERNEL.split("class ModelNew")[0]
    return f"{head}\n{extra}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        M, N = x.shape\n{body}"


LAUNCH = """        out = torch.empty_like(x)
        kernel[(triton.cdiv(M, 4),)](x, out, M, N, ROWS=4, BLOCK=512)
"""
