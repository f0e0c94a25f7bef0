"""batch norm with the unbiased variance

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=1e-5))


def get_inputs():
    return [torch.randn(12, 10, 64)]


def get_init_inputs():
    return [10]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


def BLOCK_SIZE_BATCH_heuristic(args):
    return min(max(1, triton.next_power_of_2(args["batch_dim"])), 8)


@triton.heuristics(
    {
        "BLOCK_SIZE_BATCH": BLOCK_SIZE_BATCH_heuristic,
        "BLOCK_SIZE_SPATIAL": lambda args: min(triton.next_power_of_2(args["spatial_dim"]), 32),
    }
)
@triton.jit
def batch_norm_forward_kernel(
    input_pointer,
    weight_pointer,
    bias_pointer,
    output_pointer,
    batch_dim,
    spatial_dim,
    batch_stride,
    feat_stride,
    spatial_stride,
    eps,
    affine: tl.constexpr,
    add_relu: tl.constexpr,
    BLOCK_SIZE_BATCH: tl.constexpr,
    BLOCK_SIZE_SPATIAL: tl.constexpr,
):
    feat_pid = tl.program_id(axis=0)
    input_pointer += feat_stride * feat_pid
    output_pointer += feat_stride * feat_pid
    count = 0
    mean = 0.0
    m2 = 0.0
    for block_ind in range(0, tl.cdiv(batch_dim, BLOCK_SIZE_BATCH)):
        batch_offset = block_ind * BLOCK_SIZE_BATCH + tl.arange(0, BLOCK_SIZE_BATCH)
        batch_mask = batch_offset < batch_dim
        for spatial_ind in range(0, tl.cdiv(spatial_dim, BLOCK_SIZE_SPATIAL)):
            spatial_offset = spatial_ind * BLOCK_SIZE_SPATIAL + tl.arange(0, BLOCK_SIZE_SPATIAL)
            spatial_mask = spatial_offset < spatial_dim
            pointers = input_pointer + batch_stride * batch_offset[:, None] + spatial_stride * spatial_offset[None, :]
            inside = batch_mask[:, None] & spatial_mask[None, :]
            part = tl.load(pointers, mask=inside, other=0.0).to(tl.float32)
            part_count = min(BLOCK_SIZE_BATCH, batch_dim - block_ind * BLOCK_SIZE_BATCH) * min(
                BLOCK_SIZE_SPATIAL, spatial_dim - spatial_ind * BLOCK_SIZE_SPATIAL
            )
            part_mean = tl.sum(part) / part_count
            d = tl.where(inside, part - part_mean, 0.0)
            delta = part_mean - mean
            new_count = count + part_count
            m2 += tl.sum(d * d) + delta * delta * count * part_count / new_count
            mean += delta * part_count / new_count
            count = new_count
    inv_std = tl.rsqrt(m2 / (count - 1) + eps)
    if affine:
        weight = inv_std * tl.load(weight_pointer + feat_pid)
        bias = tl.load(bias_pointer + feat_pid) - mean * weight
    else:
        weight = inv_std
        bias = -mean * inv_std
    for block_ind in range(0, tl.cdiv(batch_dim, BLOCK_SIZE_BATCH)):
        batch_offset = block_ind * BLOCK_SIZE_BATCH + tl.arange(0, BLOCK_SIZE_BATCH)
        batch_mask = batch_offset < batch_dim
        for spatial_ind in range(0, tl.cdiv(spatial_dim, BLOCK_SIZE_SPATIAL)):
            spatial_offset = spatial_ind * BLOCK_SIZE_SPATIAL + tl.arange(0, BLOCK_SIZE_SPATIAL)
            spatial_mask = spatial_offset < spatial_dim
            offset = batch_stride * batch_offset[:, None] + spatial_stride * spatial_offset[None, :]
            inside = batch_mask[:, None] & spatial_mask[None, :]
            output = weight * tl.load(input_pointer + offset, mask=inside) + bias
            if add_relu:
                output = tl.maximum(output, 0)
            tl.store(output_pointer + offset, output, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        batch_dim, feat_dim, spatial_dim = x.shape
        output = torch.empty_like(x)
        batch_norm_forward_kernel[(feat_dim,)](
            x, self.weight, self.bias, output, batch_dim, spatial_dim, *x.stride(), 1e-5, affine=True, add_relu=True
        )
        return output
