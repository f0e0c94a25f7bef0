"""weighted negative log likelihood divided by the batch

expect: refused
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.register_buffer("weight", torch.rand(classes) + 0.5)

    def forward(self, x, target):
        return F.nll_loss(x, target, self.weight)


def get_inputs():
    return [torch.randn(300, 20).log_softmax(-1), torch.randint(0, 20, (300,))]


def get_init_inputs():
    return [20]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def nll_loss_forward_kernel(
    input_pointer,
    target_pointer,
    weight_pointer,
    sum_weights_pointer,
    output_pointer,
    batch_dim,
    input_batch_stride,
    input_feat_stride,
    BLOCK_SIZE_BATCH: tl.constexpr,
):
    batch_pid = tl.program_id(axis=0)
    batch_offset = batch_pid * BLOCK_SIZE_BATCH + tl.arange(0, BLOCK_SIZE_BATCH)
    batch_mask = batch_offset < batch_dim
    target = tl.load(target_pointer + batch_offset, mask=batch_mask, other=0)
    pred = tl.load(
        input_pointer + input_batch_stride * batch_offset + input_feat_stride * target, mask=batch_mask, other=0.0
    )
    weight = tl.load(weight_pointer + target, mask=batch_mask, other=0.0).to(tl.float32)
    tl.store(output_pointer + batch_pid, -tl.sum(pred * weight))
    tl.store(sum_weights_pointer + batch_pid, tl.sum(batch_mask.to(tl.float32)))


@triton.jit
def divide_kernel(loss_pointer, weights_pointer, output_pointer, parts, BLOCK_SIZE: tl.constexpr):
    offset = tl.arange(0, BLOCK_SIZE)
    mask = offset < parts
    loss = tl.sum(tl.load(loss_pointer + offset, mask=mask, other=0.0))
    weights = tl.sum(tl.load(weights_pointer + offset, mask=mask, other=0.0))
    tl.store(output_pointer, loss / weights)


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.register_buffer("weight", torch.rand(classes) + 0.5)

    def forward(self, x, target):
        batch_dim = x.shape[0]
        parts = triton.cdiv(batch_dim, 64)
        loss = torch.empty(parts, dtype=torch.float32, device=x.device)
        weights = torch.empty(parts, dtype=torch.float32, device=x.device)
        output = torch.empty((), dtype=torch.float32, device=x.device)
        nll_loss_forward_kernel[(parts,)](
            x, target, self.weight, weights, loss, batch_dim, *x.stride(), BLOCK_SIZE_BATCH=64
        )
        divide_kernel[(1,)](loss, weights, output, parts, BLOCK_SIZE=triton.next_power_of_2(parts))
        return output
