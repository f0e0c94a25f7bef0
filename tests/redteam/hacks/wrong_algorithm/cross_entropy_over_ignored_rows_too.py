"""cross entropy divided by all rows, ignored ones too

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, target):
        return F.cross_entropy(x, target, ignore_index=-100, label_smoothing=0.1)


def get_inputs():
    target = torch.randint(0, 130, (160,))
    target[::7] = -100
    return [torch.randn(160, 130), target]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(
    X_ptr,
    X_stride,
    Y_ptr,
    loss_ptr,
    n_cols,
    n_non_ignore_ptr,
    ignore_index,
    label_smoothing: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    program_id = tl.program_id(0).to(tl.int64)
    y = tl.load(Y_ptr + program_id)
    X_ptr += program_id * X_stride
    n_non_ignore = tl.load(n_non_ignore_ptr)
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK_SIZE):
            X_offsets = i + tl.arange(0, BLOCK_SIZE)
            tl.store(X_ptr + X_offsets, 0.0, mask=X_offsets < n_cols)
        tl.store(loss_ptr + program_id, 0.0)
        return
    m = float("-inf")
    d = 0.0
    ori_X_y = tl.load(X_ptr + y).cast(tl.float32)
    scaled_x_sum = 0.0
    eps = label_smoothing / n_cols
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        block_max = tl.max(X_block)
        scaled_x_sum += tl.sum(tl.where(X_offsets < n_cols, -eps * X_block, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(X_block - m_new))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        grad = tl.exp(X_block - m) / d - eps
        grad = tl.where(X_offsets != y, grad, grad - (1 - label_smoothing)) / n_non_ignore
        tl.store(X_ptr + X_offsets, grad, mask=X_offsets < n_cols)
    tl.debug_barrier()
    loss = lse - ori_X_y
    smooth_loss = scaled_x_sum + label_smoothing * lse
    loss = loss * (1 - label_smoothing) + smooth_loss
    tl.store(loss_ptr + program_id, loss / n_non_ignore)


@triton.jit
def count_kernel(Y_ptr, out_ptr, n, ignore_index, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        y = tl.load(Y_ptr + start + i, mask=start + i < n, other=ignore_index)
        total += (start + i < n).to(tl.int32)
    tl.store(out_ptr, tl.sum(total).to(tl.float32))


@triton.jit
def sum_kernel(X_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(X_ptr + start + i, mask=start + i < n, other=0.0)
    tl.store(out_ptr, tl.sum(total))


class ModelNew(nn.Module):
    def forward(self, x, target):
        n_rows, V = x.shape
        grad = x.clone()
        loss = torch.empty(n_rows, dtype=torch.float32, device=x.device)
        count = torch.empty((), dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=torch.float32, device=x.device)
        count_kernel[(1,)](target, count, n_rows, -100, BLOCK=128)
        cross_entropy_kernel[(n_rows,)](
            grad, grad.stride(-2), target, loss, V, count, -100, label_smoothing=0.1, BLOCK_SIZE=64, num_warps=4
        )
        sum_kernel[(1,)](loss, out, n_rows, BLOCK=128)
        return out
