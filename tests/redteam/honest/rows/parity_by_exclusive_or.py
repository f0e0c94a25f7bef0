"""parity of each row by xor_sum, and prefix parities by a scan

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        total = x[:, 0]
        prefix = [total]
        for t in range(1, x.shape[1]):
            total = total ^ x[:, t]
            prefix.append(total)
        return total, torch.stack(prefix, 1)


def get_inputs():
    return [torch.randint(0, 1 << 20, (128, 40), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exclusive_or(a, b):
    return a ^ b


@triton.jit
def parity_kernel(x_ptr, total_ptr, prefix_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0)
    tl.store(total_ptr + row, tl.xor_sum(x, 0))
    tl.store(prefix_ptr + row * N + cols, tl.associative_scan(x, 0, exclusive_or), mask=cols < N)


class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        total = torch.empty(M, dtype=x.dtype, device=x.device)
        prefix = torch.empty_like(x)
        parity_kernel[(M,)](x, total, prefix, N, BLOCK=triton.next_power_of_2(N))
        return total, prefix
