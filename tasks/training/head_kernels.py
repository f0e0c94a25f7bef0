"""Triton kernels of the chunked head: one pass over a slice of logits; PyTorch's own operations take eight.

Both hold for any slice width; logits are float32, rows are contiguous. Annotations of kernels are quoted: Triton's
compiler looks names up and refuses `Any`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.training.softmaxes import Softmaxes, Statistics

_BLOCK: Any = 2048


@triton.jit
def _statistics_kernel(
    logits: "Any",
    targets: "Any",
    highest: "Any",
    total: "Any",
    weighted: "Any",
    target_logits: "Any",
    start: "Any",
    columns: "Any",
    stride: "Any",
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    m = tl.load(highest + row)
    s = tl.load(total + row)
    t = tl.load(weighted + row)
    for first in range(0, columns, block):
        places = first + tl.arange(0, block)
        inside = places < columns
        x = tl.load(logits + row * stride + places, mask=inside, other=float("-inf"))
        new = tl.maximum(m, tl.max(x, axis=0))
        lowered = tl.where(s > 0, m - new, 0.0)
        e = tl.exp(x - new)
        t = (t + s * lowered) * tl.exp(lowered) + tl.sum(tl.where(inside, e * (x - new), 0.0), axis=0)
        s = s * tl.exp(lowered) + tl.sum(e, axis=0)
        m = new
    tl.store(highest + row, m)
    tl.store(total + row, s)
    tl.store(weighted + row, t)
    place = tl.load(targets + row) - start
    if (place >= 0) & (place < columns):
        tl.store(target_logits + row, tl.load(logits + row * stride + place))


@triton.jit
def _gradient_kernel(
    logits: "Any",
    out: "Any",
    targets: "Any",
    highest: "Any",
    log_total: "Any",
    entropies: "Any",
    of_log_probs: "Any",
    of_entropies: "Any",
    start: "Any",
    columns: "Any",
    stride: "Any",
    out_stride: "Any",
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * block + tl.arange(0, block)
    inside = places < columns
    x = tl.load(logits + row * stride + places, mask=inside, other=0.0)
    log_p = (x - tl.load(highest + row)) - tl.load(log_total + row)
    g = tl.load(of_log_probs + row)
    h = tl.load(of_entropies + row)
    d = -tl.exp(log_p) * (g + h * (log_p + tl.load(entropies + row)))
    d += tl.where(places + start == tl.load(targets + row), g, 0.0)
    tl.store(out + row * out_stride + places, d.to(out.dtype.element_ty), mask=inside)


def accumulate_statistics(logits: Tensor, targets: Tensor, start: int, running: Statistics) -> None:
    """Fold logits [N, C] of the tokens start … start + C − 1 into the running statistics, in place."""
    rows, columns = logits.shape
    if rows:
        _statistics_kernel[(rows,)](logits, targets, *running, start, columns, logits.stride(0), block=_BLOCK)


def logit_gradients(logits: Tensor, targets: Tensor, start: int, known: Softmaxes, dtype: torch.dtype) -> Tensor:
    """Return the gradient [N, C] of a slice's logits in `dtype`."""
    rows, columns = logits.shape
    out = torch.empty(logits.shape, dtype=dtype, device=logits.device)
    if rows:
        _gradient_kernel[(rows, triton.cdiv(columns, _BLOCK))](
            logits, out, targets, *known, start, columns, logits.stride(0), out.stride(0), block=_BLOCK
        )
    return out
