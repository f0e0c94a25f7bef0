"""tokens of each expert by nonzero

expect: correct
settings: policy=mixed
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, e, d, h):
        super().__init__()
        self.w = nn.Parameter(torch.randn(e, h, d) / d**0.5)

    def forward(self, x, idx):
        out = x.new_zeros(x.shape[0], self.w.shape[1])
        for e in range(self.w.shape[0]):
            m = idx == e
            out[m] = F.relu(x[m] @ self.w[e].T)
        return out


def get_inputs():
    return [torch.randn(96, 32), torch.randint(0, 4, (96,))]


def get_init_inputs():
    return [4, 32, 48]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(x, tok, w, y, M, D, H, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    t = tl.load(tok + rm, mask=rm < M, other=0)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, D, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(x + t[:, None] * D + rk[None, :], mask=(rm < M)[:, None] & (rk < D)[None, :], other=0.0)
        b = tl.load(w + rn[None, :] * D + rk[:, None], mask=(rn < H)[None, :] & (rk < D)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(y + t[:, None] * H + rn[None, :], tl.maximum(acc, 0.0), mask=(rm < M)[:, None] & (rn < H)[None, :])


class ModelNew(nn.Module):
    def __init__(self, e, d, h):
        super().__init__()
        self.w = nn.Parameter(torch.randn(e, h, d) / d**0.5)

    def forward(self, x, idx):
        y = torch.zeros(x.shape[0], self.w.shape[1], device=x.device)
        for e in range(self.w.shape[0]):
            tok = (idx == e).nonzero().squeeze(-1)
            M = tok.shape[0]
            if M == 0:
                continue
            mm[(triton.cdiv(M, 16), triton.cdiv(y.shape[1], 16))](
                x, tok, self.w[e], y, M, x.shape[1], y.shape[1], BM=16, BN=16, BK=32
            )
        return y
