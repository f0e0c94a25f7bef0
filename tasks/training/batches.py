"""Micro-batches under a token budget: sequences of like length, padded on the right or packed without padding.

Packed rows whose sequences share beginnings: tasks.training.shared_prefixes; the choice: tasks.training.layout.

Padding on the right needs no attention mask: under causal attention no real token sees what comes after it. The
language-model head runs only on the positions that predict a trained token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels_eval.errors import InputError

MICRO_BATCH_OVERHEAD_TOKENS = 64
"""Cost of one more micro-batch, in tokens of work: about 2 ms of 40 µs each (0.5 M parameters, two CPU cores)."""


@dataclass(frozen=True)
class TrainedSequence:
    """Token ids [L] and a mask of those that are trained; the first token never is, since nothing predicts it."""

    token_ids: NDArray[np.int32]
    trained: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(self.trained) != len(self.token_ids):
            raise InputError(
                f"loss mask: found {len(self.trained)} entries, expected one a token ({len(self.token_ids)})"
            )

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)


@dataclass(frozen=True)
class MicroBatch:
    """n sequences with N trained tokens, in the order of rows: padded to L tokens each, or packed in one row of T.

    Padding after the last packed sequence, if any, counts as another sequence.
    """

    rows: tuple[int, ...]
    """Indices of the sequences among those given."""
    token_ids: Tensor
    """[n, L] int64, padded on the right with 0; packed [1, T]."""
    positions: Tensor
    """[N] int64: flat index into `token_ids` of the position that predicts each trained token."""
    targets: Tensor
    """[N] int64: the trained tokens."""
    mask: Tensor
    """[n, R] float32, R being the most trained tokens of a row: 1 for each trained token, left-aligned."""
    tokens: int
    """Tokens laid out, without padding; 0 if nothing of them is learnt."""
    position_ids: Tensor | None = None
    """Packed: [1, T] int64, each token's place in its sequence."""
    boundaries: Tensor | None = None
    """Packed: int32, where each sequence begins, and T."""
    longest: int = 0
    """Packed: an upper bound of the sequences' lengths."""
    key_places: Tensor | None = None
    """With shared beginnings, whose sequences are segments: [K] int64, the places in the row that each segment sees,
    one segment's after the other's. Its own come last."""
    key_boundaries: Tensor | None = None
    """With shared beginnings: int32, where the places of each segment begin, and K."""
    longest_keys: int = 0
    """With shared beginnings: an upper bound of the places that a segment sees."""

    @property
    def packing(self) -> dict[str, Any]:
        """Options of a Transformers model that keep packed sequences apart; none for padded ones."""
        if self.boundaries is None:
            return {}
        options = {
            "position_ids": self.position_ids,
            "cu_seq_lens_q": self.boundaries,
            "cu_seq_lens_k": self.boundaries,
            "max_length_q": self.longest,
            "max_length_k": self.longest,
        }
        if self.key_places is None:
            return options
        keys = {"cu_seq_lens_k": self.key_boundaries, "max_length_k": self.longest_keys, "key_places": self.key_places}
        return options | keys

    @property
    def padded_tokens(self) -> int:
        """Tokens of work, padding included."""
        return self.token_ids.numel()

    def unflatten(self, values: Tensor) -> Tensor:
        """Lay flat values [N] of the trained tokens out as [n, R], zeros where the mask is 0. Differentiable."""
        grid = torch.zeros(self.mask.shape, dtype=values.dtype, device=values.device)
        return grid.masked_scatter(self.mask.bool(), values)

    def weightless(self) -> "MicroBatch":
        """Return it with nothing to learn: it takes part in the ranks' collectives and adds no gradient."""
        mask = torch.zeros_like(self.mask)
        return replace(self, positions=self.positions[:0], targets=self.targets[:0], mask=mask, tokens=0)

    def to(self, device: torch.device) -> "MicroBatch":
        """Return it on a device."""
        tensors = {
            name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)


def make_micro_batch(sequences: Sequence[TrainedSequence], rows: Sequence[int]) -> MicroBatch:
    """Lay the given rows of `sequences` out as padded tensors."""
    chosen = [sequences[row] for row in rows]
    width = max(sequence.length for sequence in chosen)
    token_ids = np.zeros((len(chosen), width), dtype=np.int64)
    for index, sequence in enumerate(chosen):
        token_ids[index, : sequence.length] = sequence.token_ids
    return micro_batch(chosen, rows, token_ids, [index * width + np.arange(width) for index in range(len(chosen))])


def make_packed_batch(sequences: Sequence[TrainedSequence], rows: Sequence[int], multiple: int = 1) -> MicroBatch:
    """Lay the given rows of `sequences` out one after the other, in one row of a multiple of `multiple` tokens."""
    chosen = [sequences[row] for row in rows]
    lengths = [sequence.length for sequence in chosen]
    padding = -sum(lengths) % multiple
    pieces = [sequence.token_ids for sequence in chosen]
    if padding:
        pieces.append(np.zeros(padding, dtype=np.int32))
        lengths.append(padding)
    starts = [0, *np.cumsum(lengths).tolist()]
    places = [start + np.arange(sequence.length) for sequence, start in zip(chosen, starts, strict=False)]
    batch = micro_batch(chosen, rows, np.concatenate(pieces).astype(np.int64)[None], places)
    return replace(
        batch,
        position_ids=torch.from_numpy(np.concatenate([np.arange(length) for length in lengths]))[None],
        boundaries=torch.tensor(starts, dtype=torch.int32),
        longest=rounded_up(max(lengths)),
    )


def rounded_up(length: int) -> int:
    """Return the power of two from it on: each is a kernel launch's shape or a compiled layer's guard; few are best."""
    return 1 << (length - 1).bit_length()


def micro_batch(
    chosen: Sequence[TrainedSequence],
    rows: Sequence[int],
    token_ids: NDArray[np.int64],
    places: Sequence[NDArray[np.int64]],
) -> MicroBatch:
    """Return a micro-batch of `token_ids`, in which the tokens of each sequence lie at flat `places`."""
    positions: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    for sequence, own in zip(chosen, places, strict=True):
        learnt = np.flatnonzero(sequence.trained[1:])
        positions.append(own[learnt])
        targets.append(sequence.token_ids[1:][learnt])
    counts = np.array([len(learnt) for learnt in positions])
    mask = np.arange(max(int(counts.max()), 1))[None, :] < counts[:, None]
    return MicroBatch(
        rows=tuple(rows),
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(np.concatenate(positions)),
        targets=torch.from_numpy(np.concatenate(targets).astype(np.int64)),
        mask=torch.from_numpy(mask.astype(np.float32)),
        tokens=sum(sequence.length for sequence in chosen),
    )


def deal_to_ranks(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Split row indices over ranks by tokens: longest first, each to the rank with the fewest tokens so far."""
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        rank = min(range(ranks), key=lambda rank: (loads[rank], rank))
        shares[rank].append(row)
        loads[rank] += lengths[row]
    return shares


def plan_micro_batches(
    lengths: Sequence[int], rows: Sequence[int], token_budget: int, overhead: int = MICRO_BATCH_OVERHEAD_TOKENS
) -> list[list[int]]:
    """Cut rows, sorted by length, into micro-batches of least cost (padded tokens + `overhead` each).

    No micro-batch has more than `token_budget` padded tokens, but for a single row that is longer than that. Dynamic
    programming over distinct lengths: exact up to how rows of one segment are split by the budget.
    """
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: (lengths[row], row))
    widths, counts = np.unique([lengths[row] for row in ordered], return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(widths) + 1)
    cut = np.zeros(len(widths) + 1, dtype=np.int64)
    for last in range(1, len(widths) + 1):
        width = int(widths[last - 1])
        numbers = ends[last] - ends[:last]
        pieces = np.ceil(numbers / max(token_budget // width, 1))
        costs = best[:last] + numbers * width + pieces * overhead
        cut[last] = int(np.argmin(costs))
        best[last] = costs[cut[last]]
    batches: list[list[int]] = []
    last = len(widths)
    while last > 0:
        segment = ordered[ends[cut[last]] : ends[last]]
        size = max(token_budget // int(widths[last - 1]), 1)
        batches.extend(segment[start : start + size] for start in range(0, len(segment), size))
        last = int(cut[last])
    return batches


def plan_packs(lengths: Sequence[int], rows: Sequence[int], token_budget: int) -> list[list[int]]:
    """Put rows into as few micro-batches of at most `token_budget` tokens as first-fit with the longest first finds.

    A single row that is longer than the budget gets its own micro-batch.
    """
    packs: list[list[int]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        place = next((place for place, left in enumerate(room) if left >= lengths[row]), None)
        if place is None:
            packs.append([row])
            room.append(token_budget - lengths[row])
        else:
            packs[place].append(row)
            room[place] -= lengths[row]
    return packs
