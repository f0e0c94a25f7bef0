"""sum of float32 accumulated in bfloat16

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p, q):
        return 0.5 * (p - q).abs().sum(-1)


def get_inputs():
    return [torch.randn(180, 170).softmax(-1), torch.randn(180, 170).softmax(-1)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tv_distance_kernel(p_ptr, p_stride, q_ptr, q_stride, loss_ptr, loss_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    p_ptr += pid * p_stride
    q_ptr += pid * q_stride
    loss_ptr += pid * loss_stride
    base_offsets = tl.arange(0, BLOCK_SIZE)
    loss_sum = 0.0
    for i in range(0, n_cols, BLOCK_SIZE):
        offsets = i + base_offsets
        mask = offsets < n_cols
        p = tl.load(p_ptr + offsets, mask=mask, other=0.0)
        q = tl.load(q_ptr + offsets, mask=mask, other=0.0)
        loss_sum += tl.sum(0.5 * tl.abs(p - q), axis=0).to(tl.bfloat16).to(tl.float32)
    tl.store(loss_ptr, loss_sum)


class ModelNew(nn.Module):
    def forward(self, p, q):
        loss = torch.zeros(p.shape[0], dtype=torch.float32, device=p.device)
        tv_distance_kernel[(p.shape[0],)](
            p, p.stride(0), q, q.stride(0), loss, loss.stride(0), p.shape[1], BLOCK_SIZE=64
        )
        return loss
