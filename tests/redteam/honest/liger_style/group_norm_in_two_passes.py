"""group norm in two passes, a loop over a group's memory and one over its channels

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(20, 8, 75)]


def get_init_inputs():
    return [2, 8]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def group_norm_forward_kernel(
    Y_ptr,
    Y_row_stride,
    Y_col_stride,
    X_ptr,
    X_row_stride,
    X_col_stride,
    W_ptr,
    B_ptr,
    hidden_size,
    channels_per_group: tl.constexpr,
    eps,
    BLOCK_SIZE: tl.constexpr,
):
    batch_idx = tl.program_id(0)
    group_idx = tl.program_id(1)
    X_ptr += batch_idx * X_row_stride + group_idx * X_col_stride
    Y_ptr += batch_idx * Y_row_stride + group_idx * Y_col_stride
    block_range = tl.arange(0, BLOCK_SIZE)
    s = 0.0
    squared_sum = 0.0
    for i in tl.range(0, hidden_size, BLOCK_SIZE):
        hidden_size_offsets = i + block_range
        mask = hidden_size_offsets < hidden_size
        X = tl.load(X_ptr + hidden_size_offsets, mask=mask, other=0.0)
        s += tl.sum(X)
        squared_sum += tl.sum(X * X)
    m = s / hidden_size
    variance = (squared_sum / hidden_size) - (m * m)
    rstd = tl.math.rsqrt(variance + eps)
    hidden_size_per_channel = hidden_size // channels_per_group
    for channel_idx in tl.range(group_idx * channels_per_group, (group_idx + 1) * channels_per_group):
        W = tl.load(W_ptr + channel_idx)
        B = tl.load(B_ptr + channel_idx)
        for i in range(0, hidden_size_per_channel, BLOCK_SIZE):
            hidden_size_offsets = i + block_range
            mask = hidden_size_offsets < hidden_size_per_channel
            X = tl.load(X_ptr + hidden_size_offsets, mask=mask, other=m)
            tl.store(Y_ptr + hidden_size_offsets, (X - m) * rstd * W + B, mask=mask)
        X_ptr += hidden_size_per_channel
        Y_ptr += hidden_size_per_channel


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        shape = x.shape
        groups = self.norm.num_groups
        x = x.view(shape[0], groups, -1).contiguous()
        y = torch.empty_like(x)
        group_norm_forward_kernel[(shape[0], groups)](
            y,
            y.stride(0),
            y.stride(1),
            x,
            x.stride(0),
            x.stride(1),
            self.norm.weight,
            self.norm.bias,
            x.shape[-1],
            shape[1] // groups,
            self.norm.eps,
            BLOCK_SIZE=128,
        )
        return y.view(*shape)
