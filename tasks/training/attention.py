"""Attention for packed sequences, and ranks that share them (DeepSpeed Ulysses). Runs on a rank.

A packed row holds several sequences, none of which sees another. `use_packed_attention(model)` makes a Transformers
model take `cu_seq_lens_q` (int32 [n + 1], where each sequence begins and ends) and `max_length_q`. With shared
beginnings (tasks.training.shared_prefixes) a segment of the row sees keys of others too: `key_places`, `cu_seq_lens_k`.
On a GPU one call computes all sequences: PyTorch's FlashAttention in half precision, its memory-efficient attention in
float32. On a CPU PyTorch's own attention runs once a sequence. None builds a mask of the row, which would grow with its
square.

With `update.context_parallel` above 1 each rank of a `SequenceGroup` holds an equal piece of the row; for attention
the ranks exchange pieces of the row for heads, and back (DeepSpeed's `UlyssesSPAttentionHF`; docs/decisions/0005).
`gather` puts the scores of the whole row together. Only the rank's own carry a gradient: the ranks' gradients add up
to the batch's, as those of data-parallel ranks do. ZeRO partitions over all ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kernels_eval.errors import InputError
from tasks.models.policy import attention_kinds
from tasks.training.batches import MicroBatch, TrainedSequence
from tasks.training.config import check_heads
from tasks.training.layout import Layout, Part, part_of

PACKED = "kernelmill_packed"
_CAUSAL_FROM_TOP_LEFT, _CAUSAL_FROM_BOTTOM_RIGHT = 1, 2
"""PyTorch's numbers for the mask of its memory-efficient attention (CustomMaskType in its sources)."""


@dataclass(frozen=True)
class SequenceGroup:
    """A rank's group, which shares sequences, and the rank's piece of each packed row. Default: a group of one."""

    size: int = 1
    """Ranks that share each sequence."""
    rank: int = 0
    """Number of this rank's piece in the group."""
    number: int = 0
    """Number of this group."""
    groups: int = 1
    """Number of groups; no two share a sequence."""
    process_group: Any = None

    def plan(self, layout: Layout, sequences: Sequence[TrainedSequence]) -> tuple[list[Part], int]:
        """Return the content of each of this group's micro-batches, and the number of weightless ones that follow.

        Every group takes part in every collective: all have as many micro-batches as the one with the most.
        """
        plans = layout.plans(sequences, self.groups)
        own = plans[self.number]
        return own, max(len(plan) for plan in plans) - len(own)

    def micro_batches(
        self, layout: Layout, sequences: Sequence[TrainedSequence], device: torch.device
    ) -> Iterator[MicroBatch]:
        """Yield this group's micro-batches; every group has equally many, the last ones without weight if need be."""
        plan, missing = self.plan(layout, sequences)
        for part in plan:
            yield layout.make(sequences, part).to(device)
        for _ in range(missing):
            yield layout.make(sequences, part_of([0])).weightless().to(device)

    def own_part(self, batch: MicroBatch) -> tuple[MicroBatch, slice]:
        """Return the rank's piece of a packed row, and the slice of the row's trained tokens that it predicts."""
        if self.size == 1:
            return batch, slice(None)
        assert batch.position_ids is not None, "sequences are shared in packed rows only"
        width = batch.token_ids.shape[1] // self.size
        start = self.rank * width
        ends = torch.tensor([start, start + width], device=batch.positions.device)
        own = slice(*torch.searchsorted(batch.positions, ends).tolist())
        piece = replace(
            batch,
            token_ids=batch.token_ids[:, start : start + width],
            position_ids=batch.position_ids[:, start : start + width],
            positions=batch.positions[own] - start,
            targets=batch.targets[own],
        )
        return piece, own

    def gather(self, values: Tensor, own: slice, total: int) -> Tensor:
        """values [n] of the trained tokens `own` -> [total] of all; only own entries carry a gradient."""
        if self.size == 1:
            return values
        whole = torch.zeros(total, dtype=values.dtype, device=values.device)
        whole[own] = values.detach()
        if total:
            distributed.all_reduce(whole, group=self.process_group)
        whole[own] = values
        return whole


ALONE = SequenceGroup()


def join_sequence_group(size: int) -> SequenceGroup:
    """Return this rank's place; groups are of neighbouring ranks. Collective: all ranks call it."""
    world_size, rank = distributed.get_world_size(), distributed.get_rank()
    if world_size % size:
        raise InputError(
            f"update.ranks: found {world_size}, expected a multiple of update.context_parallel = {size}: "
            "each group shares its sequences"
        )
    number, groups = rank // size, world_size // size
    own = None
    if size > 1:
        made = [distributed.new_group(range(first, first + size)) for first in range(0, world_size, size)]
        own = made[number]
    return SequenceGroup(size, rank % size, number, groups, own)


def use_packed_attention(model: PreTrainedModel, group: SequenceGroup = ALONE) -> None:
    """Switch a model to packed attention over the rows of a group. Raises InputError if its attention is not causal."""
    kinds = attention_kinds(model.config)
    if kinds != {"full_attention"}:
        raise InputError(
            f"update.packing: the model's layers attend as {', '.join(sorted(kinds))}, "
            "packing knows full_attention alone; set update.packing=padded"
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
    cu_seq_lens_k: Tensor | None = None,
    max_length_k: int | None = None,
    key_places: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """query [1, H, T, D], key and value [1, K, T, D], K dividing H -> [1, T, H, D]. Called by the model."""
    if cu_seq_lens_q is None or max_length_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    spans = _Spans(cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    if key_places is not None and cu_seq_lens_k is not None and max_length_k is not None:
        key, value = key.index_select(2, key_places), value.index_select(2, key_places)
        spans = _Spans(cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, scaling, spans), None
    if query.is_cuda and query.dtype == torch.float32:
        return _memory_efficient(query, key, value, scaling, spans), None
    return _one_by_one(query, key, value, scaling, spans), None


@dataclass(frozen=True)
class _Spans:
    """First query and key of each segment, and T; upper bounds of their numbers.

    A segment's last query sees all of its keys, the one before all but the last.
    """

    queries: Tensor
    keys: Tensor
    most_queries: int
    most_keys: int


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


def _flash(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, spans: _Spans) -> Tensor:
    q, k, v = (tensor.transpose(1, 2).squeeze(0) for tensor in (query, key, value))
    out, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, spans.queries, spans.keys, spans.most_queries, spans.most_keys, 0.0, True, False, scale=scaling
    )
    return out.unsqueeze(0)


def _memory_efficient(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, spans: _Spans) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:  # this kernel knows no groups
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    out, *_ = torch.ops.aten._efficient_attention_forward(
        *(tensor.transpose(1, 2) for tensor in (query, key, value)),
        None,
        spans.queries,
        spans.keys,
        min(spans.most_queries, query.shape[2]),  # its backward pass refuses more than there are
        min(spans.most_keys, key.shape[2]),
        0.0,
        _CAUSAL_FROM_TOP_LEFT if spans.keys is spans.queries else _CAUSAL_FROM_BOTTOM_RIGHT,
        True,  # what the backward pass needs
        scale=scaling,
    )
    return out


def _one_by_one(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, spans: _Spans) -> Tensor:
    # Splits, not slices: the gradient of each slice would be laid out in zeros of the whole row, and all of them added.
    lengths, seen = ((ends[1:] - ends[:-1]).tolist() for ends in (spans.queries, spans.keys))
    parts: list[Tensor] = []
    for queries, keys, values in zip(
        query.split(lengths, dim=2), key.split(seen, dim=2), value.split(seen, dim=2), strict=True
    ):
        count, among = queries.shape[2], keys.shape[2]
        sees_others = among > count
        parts.append(
            scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=_from_bottom_right(count, among, query.device) if sees_others else None,
                is_causal=not sees_others,
                scale=scaling,
                enable_gqa=query.shape[1] > key.shape[1],
            )
        )
    return torch.cat(parts, dim=2).transpose(1, 2)


def _from_bottom_right(queries: int, keys: int, device: torch.device) -> Tensor:
    """Return the mask [queries, keys] with which the last query sees all keys, and each before it one less."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Causal attention within boundaries needs no mask."""


ALL_ATTENTION_FUNCTIONS.register(PACKED, packed_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(PACKED, _no_mask)
