"""RMS norm of several rows a program, its weight optional by a constexpr flag

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def get_inputs():
    return [torch.randn(230, 60)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rms_norm_forward_kernel(
    X,
    W,
    R,
    O,
    batch_dim,
    feat_dim,
    sb,
    sf,
    eps,
    scale_by_weight: tl.constexpr,
    save_stats: tl.constexpr,
    BLOCK_SIZE_BATCH: tl.constexpr,
    BLOCK_SIZE_FEAT: tl.constexpr,
):
    batch_offset = tl.program_id(0) * BLOCK_SIZE_BATCH + tl.arange(0, BLOCK_SIZE_BATCH)
    feat_offset = tl.arange(0, BLOCK_SIZE_FEAT)
    batch_mask = batch_offset < batch_dim
    feat_mask = feat_offset < feat_dim
    mask = batch_mask[:, None] & feat_mask[None, :]
    x = tl.load(X + sb * batch_offset[:, None] + sf * feat_offset[None, :], mask=mask, other=0.0).to(tl.float32)
    inv_rms = tl.rsqrt(tl.sum(x * x, axis=1) / feat_dim + eps)
    output = x * inv_rms[:, None]
    if save_stats:
        tl.store(R + batch_offset, inv_rms, mask=batch_mask)
    if scale_by_weight:
        output *= tl.load(W + feat_offset, mask=feat_mask)
    tl.store(O + sb * batch_offset[:, None] + sf * feat_offset[None, :], output, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        batch_dim, feat_dim = x.shape
        out = torch.empty_like(x)
        grid = lambda META: (triton.cdiv(batch_dim, META["BLOCK_SIZE_BATCH"]),)
        rms_norm_forward_kernel[grid](
            x,
            None,
            None,
            out,
            batch_dim,
            feat_dim,
            *x.stride(),
            1e-5,
            scale_by_weight=False,
            save_stats=False,
            BLOCK_SIZE_BATCH=8,
            BLOCK_SIZE_FEAT=triton.next_power_of_2(feat_dim),
        )
        return out
