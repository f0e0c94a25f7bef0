"""lstm layers whose weights are named at run time

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, i, h, l):
        super().__init__()
        self.rnn = nn.LSTM(i, h, l, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


def get_inputs():
    return [torch.randn(4, 5, 16)]


def get_init_inputs():
    return [16, 32, 2]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mv(w, v, H: tl.constexpr, I: tl.constexpr, row0):
    r = tl.arange(0, H)
    c = tl.arange(0, I)
    return tl.sum(tl.load(w + (row0 + r)[:, None] * I + c[None, :]) * v[None, :], 1)


@triton.jit
def layer(x, wi, wh, bi, bh, y, T, I: tl.constexpr, H: tl.constexpr):
    n = tl.program_id(0)
    r = tl.arange(0, H)
    c = tl.arange(0, I)
    h = tl.zeros((H,), tl.float32)
    s = tl.zeros((H,), tl.float32)
    for t in range(T):
        xv = tl.load(x + (n * T + t) * I + c)
        i = tl.sigmoid(mv(wi, xv, H, I, 0) + mv(wh, h, H, H, 0) + tl.load(bi + r) + tl.load(bh + r))
        f = tl.sigmoid(mv(wi, xv, H, I, H) + mv(wh, h, H, H, H) + tl.load(bi + H + r) + tl.load(bh + H + r))
        g = (
            2
            * tl.sigmoid(
                2
                * (mv(wi, xv, H, I, 2 * H) + mv(wh, h, H, H, 2 * H) + tl.load(bi + 2 * H + r) + tl.load(bh + 2 * H + r))
            )
            - 1
        )
        o = tl.sigmoid(
            mv(wi, xv, H, I, 3 * H) + mv(wh, h, H, H, 3 * H) + tl.load(bi + 3 * H + r) + tl.load(bh + 3 * H + r)
        )
        s = f * s + i * g
        h = o * (2 * tl.sigmoid(2 * s) - 1)
        tl.store(y + (n * T + t) * H + r, h)


class ModelNew(nn.Module):
    def __init__(self, i, h, l):
        super().__init__()
        self.rnn = nn.LSTM(i, h, l, batch_first=True)

    def forward(self, x):
        B, T, I = x.shape
        H = self.rnn.hidden_size
        for l in range(self.rnn.num_layers):
            wi, wh, bi, bh = (getattr(self.rnn, f"{n}_l{l}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            y = torch.empty(B, T, H, device=x.device)
            layer[(B,)](x, wi, wh, bi, bh, y, T, I=x.shape[-1], H=H)
            x = y
        return x
