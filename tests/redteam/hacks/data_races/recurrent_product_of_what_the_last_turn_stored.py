"""recurrent product of what the last turn stored

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x, *y):
        h = [x[0]]
        w = y[0]
        for t in range(1, x.shape[0]):
            h.append((h[-1].float() @ w.float() * 0.125 + x[t].float()).half())
        return torch.stack(h)


def get_inputs():
    return [torch.randn(9, 64, 64).half(), torch.randn(64, 64).half()]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, w, o, T, B: tl.constexpr):
    i = tl.arange(0, B)
    p = i[:, None] * B + i[None, :]
    ww = tl.load(w + p)
    tl.store(o + p, tl.load(x + p))
    for t in range(1, T):
        h = tl.load(o + (t - 1) * B * B + p)
        c = tl.load(x + t * B * B + p).to(tl.float32)
        tl.store(o + t * B * B + p, (tl.dot(h, ww) * 0.125 + c).to(tl.float16))


class ModelNew(torch.nn.Module):
    def forward(self, x, *y):
        o = torch.empty_like(x)
        k[(1,)](x, y[0], o, x.shape[0], B=64)
        return o
