"""a table of addresses, and a stream that fills a tensor of its own

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + torch.arange(x.numel(), device=x.device) * 0.5


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def by_table(x_ptr, table, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(y + i, tl.maximum(x, 0.0), mask=i < n)


@triton.jit
def places(p_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(p_ptr + i, i.to(tl.float32) * 0.5, mask=i < n)


@triton.jit
def add(a_ptr, b_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(a_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, a + tl.load(b_ptr + i, mask=i < n, other=0.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        y, o = torch.empty_like(x), torch.empty_like(x)
        table = torch.tensor([y.data_ptr()], dtype=torch.int64).cuda()
        grid = (triton.cdiv(n, 256),)
        by_table[grid](x, table, n, B=256)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            p = torch.empty(n, device=x.device)
            places[grid](p, n, B=256)
        torch.cuda.current_stream().wait_stream(side)
        add[grid](y, p, o, n, B=256)
        return o
