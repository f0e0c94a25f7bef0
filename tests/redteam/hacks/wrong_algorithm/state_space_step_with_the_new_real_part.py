"""state space step whose imaginary part uses the new real part

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, re, im):
        a = torch.complex(re, im)
        h = torch.zeros_like(a).unsqueeze(0).expand(x.shape[0], -1)
        out = []
        for t in range(x.shape[1]):
            h = a * h + x[:, t]
            out.append(h.real)
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.randn(16, 12, 40), torch.rand(40) * 0.7, torch.rand(40) * 0.7]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def diag_ssm_kernel(X, RE, IM, O, L, D, BLOCK: tl.constexpr):
    batch = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = d < D
    a = tl.load(RE + d, mask=mask, other=0.0)
    b = tl.load(IM + d, mask=mask, other=0.0)
    s_re = tl.zeros((BLOCK,), dtype=tl.float32)
    s_im = tl.zeros((BLOCK,), dtype=tl.float32)
    for t in range(L):
        off = (batch * L + t) * D + d
        x = tl.load(X + off, mask=mask, other=0.0)
        new_re = s_re * a - s_im * b + x
        s_re = new_re
        s_im = s_re * b + s_im * a
        tl.store(O + off, s_re, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, re, im):
        B, L, D = x.shape
        o = torch.empty_like(x)
        diag_ssm_kernel[(B, triton.cdiv(D, 32))](x, re, im, o, L, D, BLOCK=32)
        return o
