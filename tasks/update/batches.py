"""Micro-batches: sequences of like length together, padded on the right, under a token budget.

Padding on the right needs no attention mask: under causal attention no real token sees what comes after it. Sequences are cut into
micro-batches where that costs the fewest padded tokens, so that next to nothing is padded. The language-model head runs on
the positions that predict a trained token, nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MICRO_BATCH_OVERHEAD_TOKENS = 64
"""What one more micro-batch costs, in tokens of work: about 2 ms of 40 µs each (0.5 M parameters, two CPU cores)."""


@dataclass(frozen=True)
class TrainedSequence:
    """Token ids [L] and which of them are learnt; the first token never is, since nothing predicts it."""

    token_ids: NDArray[np.int32]
    trained: NDArray[np.bool_]

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)


@dataclass(frozen=True)
class MicroBatch:
    """n sequences padded to L tokens, with N trained tokens among them, in the order of rows."""

    rows: tuple[int, ...]
    """Which of the sequences that were handed in."""
    token_ids: Tensor
    """[n, L] int64, padded on the right with 0."""
    positions: Tensor
    """[N] int64: flat index into [n × L] of the position that predicts each trained token."""
    targets: Tensor
    """[N] int64: the trained tokens."""
    mask: Tensor
    """[n, R] float32, R being the most trained tokens of a row: 1 for each trained token, left-aligned."""

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
        return replace(self, positions=self.positions[:0], targets=self.targets[:0], mask=torch.zeros_like(self.mask))

    def to(self, device: torch.device) -> "MicroBatch":
        """Return it on a device."""
        return MicroBatch(
            self.rows,
            self.token_ids.to(device),
            self.positions.to(device),
            self.targets.to(device),
            self.mask.to(device),
        )


def make_micro_batch(sequences: Sequence[TrainedSequence], rows: Sequence[int]) -> MicroBatch:
    """Lay the given rows of `sequences` out as tensors."""
    chosen = [sequences[row] for row in rows]
    width = max(sequence.length for sequence in chosen)
    token_ids = np.zeros((len(chosen), width), dtype=np.int64)
    positions: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    for index, sequence in enumerate(chosen):
        token_ids[index, : sequence.length] = sequence.token_ids
        learnt = np.flatnonzero(sequence.trained[1:])
        positions.append(learnt + index * width)
        targets.append(sequence.token_ids[1:][learnt])
    counts = np.array([len(learnt) for learnt in positions])
    mask = np.arange(max(int(counts.max()), 1))[None, :] < counts[:, None]
    return MicroBatch(
        rows=tuple(rows),
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(np.concatenate(positions)),
        targets=torch.from_numpy(np.concatenate(targets).astype(np.int64)),
        mask=torch.from_numpy(mask.astype(np.float32)),
    )


def deal_to_ranks(lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """Split row indices over ranks so that each gets about as many tokens: longest first, to the rank with the fewest tokens."""
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

    No micro-batch has more than `token_budget` padded tokens, but for a single row that is longer than that. Dynamic programming over
    distinct lengths: exact up to how rows of one segment are split by the budget.
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
