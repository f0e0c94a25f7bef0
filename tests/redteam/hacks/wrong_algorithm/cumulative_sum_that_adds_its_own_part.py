"""cumulative sum that adds its own part too

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=0)


def get_inputs():
    return [torch.randn(20000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan_part_sum_kernel(inp, out, partial_sum, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offset = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    vals = tl.load(inp + offset, mask=mask, other=0.0).to(tl.float32)
    result = tl.cumsum(vals, axis=0)
    tl.store(out + offset, result, mask=mask)
    tl.store(partial_sum + pid, tl.sum(vals, axis=0))


@triton.jit
def scan_partials_kernel(partial_sum, parts, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    mask = offset < parts
    vals = tl.load(partial_sum + offset, mask=mask, other=0.0)
    tl.store(partial_sum + offset, tl.cumsum(vals, axis=0), mask=mask)


@triton.jit
def add_base_sum_kernel(out, partial_sum, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offset = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offset < n
    if pid > 0:
        last = tl.load(partial_sum + pid)
        tl.store(out + offset, tl.load(out + offset, mask=mask) + last, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        parts = triton.cdiv(n, 512)
        out = torch.empty_like(x)
        sums = torch.empty(parts, dtype=torch.float32, device=x.device)
        scan_part_sum_kernel[(parts,)](x, out, sums, n, BLOCK=512)
        scan_partials_kernel[(1,)](sums, parts, BLOCK=triton.next_power_of_2(parts))
        add_base_sum_kernel[(parts,)](out, sums, n, BLOCK=512)
        return out
