"""launched kernel whose figures are kept and printed

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(-1, keepdim=True)


def get_inputs():
    return [torch.randn(64, 63)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def centre(x, y, C, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * C + c, mask=c < C, other=0.0)
    tl.store(y + r * C + c, v - tl.sum(v, 0) / C, mask=c < C)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        self.compiled = centre[(x.shape[0],)](x, y, x.shape[1], B=64)
        if self.compiled.n_spills > 0:
            print(f"{self.compiled.n_spills} registers spilled, {self.compiled.metadata.shared} bytes of shared memory")
        return y
