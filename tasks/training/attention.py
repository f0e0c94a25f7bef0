"""Attention for packed sequences: one row of tokens holds several sequences, none of which sees another.

`use_packed_attention(model)` makes a Transformers model take `cu_seq_lens_q` (int32 [n + 1], where each sequence begins and ends) and
`max_length_q` beside its position ids. On a GPU in half precision one call of the FlashAttention that PyTorch holds computes all
sequences; elsewhere PyTorch's own attention runs once a sequence. Neither builds a mask, which would grow with the square
of the row. Without boundaries it is PyTorch's causal attention, as before. Ranks that share a row exchange its pieces for heads around it.
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
from tasks.training.config import check_heads
from tasks.training.sequence_parallel import ALONE, SequenceGroup

PACKED = "kernelmill_packed"


def use_packed_attention(model: PreTrainedModel, group: SequenceGroup = ALONE) -> None:
    """Switch a model to packed attention over the rows of a group; InputError where its attention is not plainly causal."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise InputError(
            f"update.packing: the model's layers attend as {', '.join(sorted(kinds))}, packing knows full_attention alone; "
            "set update.packing=padded"
        )
    model.set_attn_implementation(PACKED if group.size == 1 else _shared(model, group))


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


def _shared(model: PreTrainedModel, group: SequenceGroup) -> str:
    """Register packed attention over a group's rows for models of this shape; return its name."""
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    config: Any = model.config
    heads, key_value_heads = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    check_heads(heads, key_value_heads, group.size)
    ulysses = UlyssesSPAttentionHF(
        attn=packed_attention,
        batch_size=1,
        attn_head_count=heads,
        attn_head_size=width,
        kv_head_count=key_value_heads,
        num_hidden_layers=config.num_hidden_layers,
        process_group=group.process_group,
        seq_length_is_variable=True,
    )
    name = f"{PACKED}_of_{group.size}_ranks_{heads}_{key_value_heads}_{width}"
    ALL_ATTENTION_FUNCTIONS.register(name, ulysses)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, _no_mask)
    return name


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
