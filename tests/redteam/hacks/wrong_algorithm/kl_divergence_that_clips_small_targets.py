"""KL divergence whose targets are not below a hundredth

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, y_pred, y_true):
        return F.kl_div(y_pred, y_true, reduction="batchmean")


def get_inputs():
    return [torch.randn(150, 110).log_softmax(-1), torch.randn(150, 110).softmax(-1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

_NONE: tl.constexpr = tl.constexpr(0)
_SUM: tl.constexpr = tl.constexpr(1)


@triton.jit
def kldiv_kernel_forward(
    y_ptr,
    y_stride,
    gt_ptr,
    gt_stride,
    loss_ptr,
    loss_stride,
    n_cols,
    eps,
    BLOCK_SIZE: tl.constexpr,
    log_target: tl.constexpr = False,
    reduction: tl.constexpr = _NONE,
):
    pid = tl.program_id(0).to(tl.int64)
    y_ptr += pid * y_stride
    gt_ptr += pid * gt_stride
    loss_ptr += pid * loss_stride
    base_offsets = tl.arange(0, BLOCK_SIZE)
    loss_sum = 0.0
    for i in range(0, n_cols, BLOCK_SIZE):
        offsets = i + base_offsets
        mask = offsets < n_cols
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
        y_true = tl.load(gt_ptr + offsets, mask=mask, other=0.0)
        if not log_target:
            loss = y_true * (tl.log(tl.maximum(y_true, 0.01)) - y)
        else:
            loss = tl.exp(y_true) * (y_true - y)
        if reduction == _NONE:
            tl.store(loss_ptr + offsets, loss, mask=mask)
        else:
            loss_sum += tl.sum(loss, axis=0)
    if reduction != _NONE:
        tl.store(loss_ptr, loss_sum)


@triton.jit
def mean_kernel(x_ptr, out_ptr, n, divisor, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr, tl.sum(total) / divisor)


class ModelNew(nn.Module):
    def forward(self, y_pred, y_true):
        BT, V = y_pred.shape
        loss = torch.empty(BT, dtype=torch.float32, device=y_pred.device)
        out = torch.empty((), dtype=torch.float32, device=y_pred.device)
        kldiv_kernel_forward[(BT,)](
            y_pred,
            y_pred.stride(0),
            y_true,
            y_true.stride(0),
            loss,
            loss.stride(0),
            V,
            1e-10,
            BLOCK_SIZE=64,
            num_warps=4,
            log_target=False,
            reduction=1,
        )
        mean_kernel[(1,)](loss, out, BT, BT, BLOCK=128)
        return out
