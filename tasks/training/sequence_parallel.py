"""Ranks that share each sequence (DeepSpeed Ulysses), as many as `update.context_parallel` says.

A packed row of tokens is cut into equal pieces, one for each rank of a group. Embeddings, norms, projections, MLPs and the head see the rank's own
piece; for attention the ranks exchange pieces of the row for heads, and back again (DeepSpeed's `UlyssesSPAttentionHF`; see docs/decisions/0005).
A rank then has the log-probabilities of its own tokens. `gather` puts those of the whole row together, so that losses see whole sequences,
but only the rank's own carry a gradient: gradients of the ranks add up to the batch's, exactly as those of data-parallel ranks do.
DeepSpeed's engine is therefore told nothing of the groups, and every ZeRO stage partitions over all ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed

from kernels_eval.errors import InputError
from tasks.training.batches import Layout, MicroBatch, deal_to_ranks


@dataclass(frozen=True)
class SequenceGroup:
    """A rank's place: which group of ranks gets which sequences, and which piece of them is the rank's. Alone by default."""

    size: int = 1
    """Ranks that share each sequence."""
    rank: int = 0
    """Which of the group's pieces is this rank's."""
    number: int = 0
    """Which of the groups this is."""
    groups: int = 1
    """Groups, each with sequences of its own."""
    process_group: Any = None

    def plan(self, layout: Layout, lengths: Sequence[int]) -> tuple[list[list[int]], int]:
        """Return the rows of each of this group's micro-batches, and how many without weight are to follow them.

        Every group has to take part in every collective, so that all have as many micro-batches as the one that has the most.
        """
        plans = [layout.plan(lengths, share) for share in deal_to_ranks(lengths, self.groups)]
        own = plans[self.number]
        return own, max(len(plan) for plan in plans) - len(own)

    def own_part(self, batch: MicroBatch) -> tuple[MicroBatch, slice]:
        """Return the rank's piece of a packed row, and which of the row's trained tokens are predicted in it."""
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
        """values [..., n] of the trained tokens `own` -> [..., total] of all; only the rank's own entries carry a gradient."""
        if self.size == 1:
            return values
        whole = torch.zeros((*values.shape[:-1], total), dtype=values.dtype, device=values.device)
        whole[..., own] = values.detach()
        if total:
            distributed.all_reduce(whole, group=self.process_group)
        whole[..., own] = values
        return whole


ALONE = SequenceGroup()


def join_sequence_group(size: int) -> SequenceGroup:
    """Return this rank's place; groups are of neighbouring ranks. Collective: all ranks call it."""
    world_size, rank = distributed.get_world_size(), distributed.get_rank()
    if world_size % size:
        raise InputError(
            f"update.ranks: found {world_size}, expected a multiple of update.context_parallel = {size}: each group shares its sequences"
        )
    number, groups = rank // size, world_size // size
    own = None
    if size > 1:
        made = [distributed.new_group(range(first, first + size)) for first in range(0, world_size, size)]
        own = made[number]
    return SequenceGroup(size, rank % size, number, groups, own)
