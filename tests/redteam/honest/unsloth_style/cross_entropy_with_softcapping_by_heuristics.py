"""cross entropy of softcapped logits with two heuristics that switch parts on

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, labels):
        x = 30.0 * torch.tanh(x / 30.0)
        return F.cross_entropy(x, labels, reduction="none")


def get_inputs():
    labels = torch.randint(0, 150, (200,))
    labels[3] = -100
    return [torch.randn(200, 150) * 8, labels]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


def _softcap(args):
    return bool(args["DO_SOFTCAPPING"])


def _scaling(args):
    return bool(args["DO_LOGIT_SCALING"])


@triton.heuristics({"DO_SOFTCAPPING": _softcap, "DO_LOGIT_SCALING": _scaling})
@triton.jit
def cross_entropy_forward(
    logits_ptr,
    logits_row_stride,
    loss_ptr,
    logsumexp_ptr,
    labels_ptr,
    VOCAB_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    DO_SOFTCAPPING: tl.constexpr,
    SOFTCAP: tl.constexpr,
    DO_LOGIT_SCALING: tl.constexpr,
    LOGIT_SCALE: tl.constexpr,
):
    row_idx = tl.program_id(0)
    logits_ptr += row_idx * tl.cast(logits_row_stride, tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < VOCAB_SIZE
    label_idx = tl.load(labels_ptr + row_idx).to(tl.int32)
    logits = tl.load(logits_ptr + col_offsets, mask=mask, other=-float("inf")).to(tl.float32)
    if DO_LOGIT_SCALING:
        logits = LOGIT_SCALE * logits
    if DO_SOFTCAPPING:
        logits = SOFTCAP * libdevice.tanh(logits / SOFTCAP)
        logits = tl.where(mask, logits, -float("inf"))
    c = tl.max(logits, 0)
    logsumexp = c + tl.log(tl.sum(tl.exp(logits - c), 0))
    if label_idx != -100:
        x = tl.load(logits_ptr + label_idx).to(tl.float32)
        if DO_LOGIT_SCALING:
            x = LOGIT_SCALE * x
        if DO_SOFTCAPPING:
            x = SOFTCAP * libdevice.tanh(x / SOFTCAP)
        loss = logsumexp - x
    else:
        loss = 0.0
    tl.store(logsumexp_ptr + row_idx, logsumexp)
    tl.store(loss_ptr + row_idx, loss)


class ModelNew(nn.Module):
    def forward(self, x, labels):
        n_rows, vocab = x.shape
        losses = torch.empty(n_rows, dtype=torch.float32, device=x.device)
        logsumexp = torch.empty(n_rows, dtype=torch.float32, device=x.device)
        cross_entropy_forward[(n_rows,)](
            x,
            x.stride(0),
            losses,
            logsumexp,
            labels,
            VOCAB_SIZE=vocab,
            BLOCK_SIZE=triton.next_power_of_2(vocab),
            DO_SOFTCAPPING=True,
            SOFTCAP=30.0,
            DO_LOGIT_SCALING=False,
            LOGIT_SCALE=0.0,
            num_warps=4,
        )
        return losses
