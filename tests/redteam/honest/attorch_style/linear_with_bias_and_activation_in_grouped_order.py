"""linear layer with bias and activation in grouped program order

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer) * 0.1)
        self.bias = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        return F.silu(x @ self.weight + self.bias)


def get_inputs():
    return [torch.randn(140, 75)]


def get_init_inputs():
    return [75, 100]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(input):
    return input * (1 / (1 + tl.exp(-input)))


@triton.jit
def linear_forward_kernel(
    X,
    W,
    B,
    O,
    batch_dim,
    in_feat_dim,
    out_feat_dim,
    sxb,
    sxf,
    swi,
    swo,
    sob,
    sof,
    add_bias: tl.constexpr,
    act_func: tl.constexpr,
    BLOCK_SIZE_BATCH: tl.constexpr,
    BLOCK_SIZE_IN_FEAT: tl.constexpr,
    BLOCK_SIZE_OUT_FEAT: tl.constexpr,
    GROUP_SIZE_BATCH: tl.constexpr,
):
    pid = tl.program_id(axis=0)
    n_batch_pids = tl.cdiv(batch_dim, BLOCK_SIZE_BATCH)
    n_out_feat_pids = tl.cdiv(out_feat_dim, BLOCK_SIZE_OUT_FEAT)
    pids_per_group = GROUP_SIZE_BATCH * n_out_feat_pids
    group_id = pid // pids_per_group
    first_batch_pid = group_id * GROUP_SIZE_BATCH
    size = min(n_batch_pids - first_batch_pid, GROUP_SIZE_BATCH)
    batch_pid = first_batch_pid + (pid % size)
    out_feat_pid = (pid % pids_per_group) // size
    batch_offset = batch_pid * BLOCK_SIZE_BATCH + tl.arange(0, BLOCK_SIZE_BATCH)
    out_feat_offset = out_feat_pid * BLOCK_SIZE_OUT_FEAT + tl.arange(0, BLOCK_SIZE_OUT_FEAT)
    batch_mask = batch_offset < batch_dim
    out_feat_mask = out_feat_offset < out_feat_dim
    X += sxb * batch_offset[:, None]
    W += swo * out_feat_offset[None, :]
    accum = tl.zeros((BLOCK_SIZE_BATCH, BLOCK_SIZE_OUT_FEAT), dtype=tl.float32)
    for block_ind in range(0, tl.cdiv(in_feat_dim, BLOCK_SIZE_IN_FEAT)):
        in_feat_offset = block_ind * BLOCK_SIZE_IN_FEAT + tl.arange(0, BLOCK_SIZE_IN_FEAT)
        in_feat_mask = in_feat_offset < in_feat_dim
        x = tl.load(X + sxf * in_feat_offset[None, :], mask=batch_mask[:, None] & in_feat_mask[None, :], other=0.0)
        w = tl.load(W + swi * in_feat_offset[:, None], mask=out_feat_mask[None, :] & in_feat_mask[:, None], other=0.0)
        accum += tl.dot(x, w, allow_tf32=False)
    if add_bias:
        bias = tl.load(B + out_feat_offset, mask=out_feat_mask, other=0.0)
        accum += bias[None, :]
    if act_func is not None:
        accum = silu(accum)
    O += sob * batch_offset[:, None] + sof * out_feat_offset[None, :]
    tl.store(O, accum, mask=batch_mask[:, None] & out_feat_mask[None, :])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer) * 0.1)
        self.bias = nn.Parameter(torch.randn(outer))

    def forward(self, x):
        batch_dim, inner = x.shape
        outer = self.weight.shape[1]
        out = torch.empty((batch_dim, outer), device=x.device, dtype=x.dtype)
        grid = lambda META: (
            triton.cdiv(batch_dim, META["BLOCK_SIZE_BATCH"]) * triton.cdiv(outer, META["BLOCK_SIZE_OUT_FEAT"]),
        )
        linear_forward_kernel[grid](
            x,
            self.weight,
            self.bias,
            out,
            batch_dim,
            inner,
            outer,
            *x.stride(),
            *self.weight.stride(),
            *out.stride(),
            add_bias=True,
            act_func="silu",
            BLOCK_SIZE_BATCH=32,
            BLOCK_SIZE_IN_FEAT=16,
            BLOCK_SIZE_OUT_FEAT=32,
            GROUP_SIZE_BATCH=2,
        )
        return out
