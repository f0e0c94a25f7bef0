"""bf16 layer norm of a 3-D input through a torch.autograd.Function with saved tensors

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d).to(torch.bfloat16)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.randn(96, 5, 160, dtype=torch.bfloat16)]


def get_init_inputs():
    return [160]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def ln_fwd(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    cols = tl.arange(0, BLOCK)
    x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    xc = tl.where(cols < N, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(xc * xc, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + cols, mask=cols < N).to(tl.float32)
    b = tl.load(B + cols, mask=cols < N).to(tl.float32)
    tl.store(Y + cols, xc * rstd * w + b, mask=cols < N)


class LN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = torch.empty_like(x)
        x2 = x.reshape(-1, x.shape[-1])
        M, N = x2.shape
        mean = torch.empty((M,), dtype=torch.float32, device=x.device)
        rstd = torch.empty((M,), dtype=torch.float32, device=x.device)
        MAX_FUSED = 65536 // x.element_size()
        BLOCK = min(MAX_FUSED, triton.next_power_of_2(N))
        if N > BLOCK:
            raise RuntimeError("This layer norm doesn't support feature dim >= 64KB.")
        num_warps = min(max(BLOCK // 256, 1), 8)
        ln_fwd[(M,)](
            x2, y, weight, bias, mean, rstd, x2.stride(0), N, eps, BLOCK=BLOCK, num_warps=num_warps, num_ctas=1
        )
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        ctx.BLOCK = BLOCK
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        raise NotImplementedError


layer_norm = LN.apply


class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d).to(torch.bfloat16)

    def forward(self, x):
        return layer_norm(x, self.ln.weight, self.ln.bias, self.ln.eps)
