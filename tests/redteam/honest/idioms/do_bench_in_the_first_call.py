"""do_bench in the first call

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(1024, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.maximum(x, 0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    best = None

    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        if self.best is None:
            run = lambda block: kernel[(triton.cdiv(n, block),)](x, out, n, BLOCK=block)
            times = {block: triton.testing.do_bench(lambda: run(block)) for block in (256, 512, 1024)}
            self.best = min(times, key=times.get)
        kernel[(triton.cdiv(n, self.best),)](x, out, n, BLOCK=self.best)
        return out
