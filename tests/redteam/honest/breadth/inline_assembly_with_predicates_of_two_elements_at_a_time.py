"""inline assembly with predicates of two elements at a time

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 300)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    y = tl.inline_asm_elementwise(
        """
    {
        .reg .pred p<2>;
        setp.gt.f32 p0, $2, 0f00000000;
        setp.gt.f32 p1, $3, 0f00000000;
        selp.f32 $0, $2, 0f00000000, p0;
        mov.b32 $1, 0;
        @p1 mov.f32 $1, $3;
    }
    """,
        "=&f,=&f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )
    tl.store(y_ptr + offs, y, mask=offs < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        return y
