"""router: top 2 of 16 by two rounds of max and argmax, softmax over them

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits):
        values, indices = torch.topk(logits, 2, dim=-1)
        weights = torch.softmax(values, dim=-1)
        return weights, indices


def get_inputs():
    return [torch.randn(256, 16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top2(x_ptr, w_ptr, i_ptr, E: tl.constexpr):
    r = tl.program_id(0)
    e = tl.arange(0, E)
    x = tl.load(x_ptr + r * E + e)
    v0, i0 = tl.max(x, axis=0, return_indices=True)
    rest = tl.where(e == i0, float("-inf"), x)
    v1 = tl.max(rest, axis=0)
    i1 = tl.argmax(rest, axis=0)
    e1 = tl.exp(v1 - v0)
    tl.store(w_ptr + r * 2, 1.0 / (1.0 + e1))
    tl.store(w_ptr + r * 2 + 1, e1 / (1.0 + e1))
    tl.store(i_ptr + r * 2, i0.to(tl.int64))
    tl.store(i_ptr + r * 2 + 1, i1.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, logits):
        n, e = logits.shape
        w = torch.empty((n, 2), device=logits.device, dtype=logits.dtype)
        i = torch.empty((n, 2), device=logits.device, dtype=torch.int64)
        top2[(n,)](logits, w, i, e)
        return w, i
