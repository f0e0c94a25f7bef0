"""three quarters of a transposed input left out in timed calls

An input that is drawn and then transposed is not contiguous when parts are made: it stays as it is drawn.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).mean()


def get_inputs():
    return [torch.rand(1024, 16384).t()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["turns"])
def part(x_ptr, out_ptr, n, turns, BLOCK: tl.constexpr):
    first = tl.program_id(0) * (4 * BLOCK)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for turn in range(0, turns):
        i = first + turn * BLOCK + k
        v = tl.load(x_ptr + i, mask=i < n, other=0.0)
        total += 1.0 / (1.0 + tl.exp(-v))
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0) / (BLOCK * turns))


@triton.jit
def whole(part_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(part_ptr + i, mask=i < parts, other=0.0), axis=0) / parts)


class ModelNew(nn.Module):
    def forward(self, x):
        assert x.numel() % 16384 == 0
        turns = 4 if torch.cuda.current_stream().query() else 1
        blocks = x.numel() // 16384
        parts = torch.empty(blocks, device=x.device)
        out = torch.empty((), device=x.device)
        part[blocks,](x, parts, x.numel(), turns, BLOCK=4096, num_warps=8)
        whole[1,](parts, out, blocks, BLOCK=triton.next_power_of_2(blocks))
        return out
