"""Attention for packed sequences: one row of tokens holds several sequences, none of which sees another.

`use_packed_attention(model)` makes a Transformers model take `cu_seq_lens_q` (int32 [n + 1], where each sequence begins and ends) and
`max_length_q` beside its position ids. On a GPU in half precision one call of the FlashAttention that PyTorch holds computes all
sequences; elsewhere PyTorch's own attention runs once a sequence. Neither builds a mask, which would grow with the square
of the row. Without boundaries it is PyTorch's causal attention, as before.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kernels_eval.errors import InputError

PACKED = "kernelmill_packed"


def use_packed_attention(model: PreTrainedModel) -> None:
    """Switch a model to packed attention; InputError where its attention is not plainly causal."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise InputError(
            f"update.packing: the model's layers attend as {', '.join(sorted(kinds))}, packing knows full_attention alone; "
            "set update.packing=padded"
        )
    model.set_attn_implementation(PACKED)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D], key and value [1, K, T, D], K dividing H -> [1, T, H, D]. Called by the model."""
    if cu_seq_lens_q is None or max_length_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, scaling, cu_seq_lens_q, max_length_q), None
    return _one_by_one(query, key, value, scaling, cu_seq_lens_q), None


def _flash(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, boundaries: Tensor, longest: int
) -> Tensor:
    q, k, v = (tensor.transpose(1, 2).squeeze(0) for tensor in (query, key, value))
    out, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, boundaries, boundaries, longest, longest, 0.0, True, False, scale=scaling
    )
    return out.unsqueeze(0)


def _one_by_one(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, boundaries: Tensor) -> Tensor:
    ends = boundaries.tolist()
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and query.is_cuda:  # in float32 a GPU's fast kernels know no groups
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        groups = 1
    parts = [
        scaled_dot_product_attention(
            query[:, :, start:end],
            key[:, :, start:end],
            value[:, :, start:end],
            is_causal=True,
            scale=scaling,
            enable_gqa=groups > 1,
        )
        for start, end in pairwise(ends)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2)


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Causal attention within boundaries needs no mask."""


ALL_ATTENTION_FUNCTIONS.register(PACKED, packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(PACKED, _no_mask)
