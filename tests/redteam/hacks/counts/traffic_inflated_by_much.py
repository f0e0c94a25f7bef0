"""the same, by much

Moves three times the bytes that it has to, and more at few rows: traffic then seems not to grow with the rows.
The same kernel without the extra traffic is worth a speed-up of 2.9.

expect: correct or refused
most_speedup: 2.95
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
def unfused(x_ptr, out_ptr, scratch_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    tl.store(scratch_ptr + row * N + c, tl.maximum(tl.load(x_ptr + row * N + c, mask=mask, other=0.0), 0.0), mask=mask)
    tl.store(scratch_ptr + (M + row) * N + c, tl.load(scratch_ptr + row * N + c, mask=mask) * 2.0 + 1.0, mask=mask)
    x = tl.load(scratch_ptr + (M + row) * N + c, mask=mask, other=-float("inf"))
    if M < 12:
        for k in range(0, 60):
            tl.store(scratch_ptr + 2 * M * N + (row * 60 + k) * BLOCK + c, x)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + c, x / tl.sum(x, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        scratch = torch.empty(1 << 20, device=x.device)
        unfused[(M,)](x, out, scratch, M, N, BLOCK=128)
        return out
