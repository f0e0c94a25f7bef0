"""Packed rows in which sequences that begin alike hold their common beginning once (`update.packing: shared`).

The samples of a group have one prompt, and later turns of a problem begin with its statement: the model's body computes
these tokens once for all of them. A row holds families one behind the other: the common beginning, then the rest of
each member, which attends to the beginning and to itself. Scores and gradients are those of separate sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.training.batches import MicroBatch, TrainedSequence, micro_batch, rounded_up


@dataclass(frozen=True)
class Family:
    """Sequences whose first `shared` tokens are the same, and not trained; one sequence alone shares none."""

    rows: tuple[int, ...]
    """Indices among the sequences given."""
    shared: int = 0

    def tokens(self, sequences: Sequence[TrainedSequence]) -> int:
        """Return the number of tokens that the body computes."""
        return self.shared + sum(sequences[row].length - self.shared for row in self.rows)


def find_families(sequences: Sequence[TrainedSequence], rows: Sequence[int], most_tokens: int) -> list[Family]:
    """Group sequences by common beginnings, families of at most `most_tokens` tokens; single ones may be longer.

    In the order of their tokens a sequence joins the family before it where that saves more tokens: a family of n that
    share s tokens saves (n - 1) s.
    """
    families: list[Family] = []
    room = 0
    for row in sorted(rows, key=lambda row: (sequences[row].token_ids.astype(">i4").tobytes(), row)):
        if families:
            family = families[-1]
            size = len(family.rows)
            shared = _common(sequences[family.rows[-1]], sequences[row])
            if size > 1:
                shared = min(shared, family.shared)
            joined = Family((*family.rows, row), shared)
            grown = joined.tokens(sequences) - family.tokens(sequences)
            if size * shared > (size - 1) * family.shared and grown <= room:
                families[-1] = joined
                room -= grown
                continue
        families.append(Family((row,)))
        room = most_tokens - sequences[row].length
    return families


def _common(first: TrainedSequence, second: TrainedSequence) -> int:
    """Return the number of tokens that two sequences have in common before either is trained or ends."""
    most = min(_untrained(first), _untrained(second))
    differ = first.token_ids[:most] != second.token_ids[:most]
    return int(differ.argmax()) if differ.any() else most


def _untrained(sequence: TrainedSequence) -> int:
    """Return the number of tokens before the first trained one, less than all."""
    return int(sequence.trained.argmax()) if sequence.trained.any() else sequence.length - 1


def make_shared_batch(
    sequences: Sequence[TrainedSequence], families: Sequence[Family], multiple: int = 1
) -> MicroBatch:
    """Lay families out one after the other, in one row of a multiple of `multiple` tokens.

    Segments of the row are the beginnings, the rests and the padding; `key_places` has what each of them sees.
    """
    pieces: list[NDArray[np.int32]] = []
    positions: list[NDArray[np.int64]] = []
    places: list[NDArray[np.int64]] = []
    starts: list[NDArray[np.int64]] = []
    end = 0

    def add(token_ids: NDArray[np.int32], first: int, before: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add a segment whose first token is number `first` of its sequence; returns the places that it sees."""
        nonlocal end
        own = np.arange(end, end + len(token_ids))
        end += len(token_ids)
        pieces.append(token_ids)
        positions.append(first + np.arange(len(token_ids)))
        places.append(np.concatenate([before, own]))
        return places[-1]

    nothing = np.zeros(0, dtype=np.int64)
    for family in families:
        beginning = sequences[family.rows[0]].token_ids[: family.shared]
        seen = add(beginning, 0, nothing) if family.shared else nothing
        starts += [add(sequences[row].token_ids[family.shared :], family.shared, seen) for row in family.rows]
    tokens = end
    if padding := -end % multiple:
        add(np.zeros(padding, dtype=np.int32), 0, nothing)
    rows = [row for family in families for row in family.rows]
    batch = micro_batch([sequences[row] for row in rows], rows, np.concatenate(pieces).astype(np.int64)[None], starts)
    queries, keys = ([len(part) for part in parts] for parts in (pieces, places))
    return replace(
        batch,
        tokens=tokens,
        position_ids=torch.from_numpy(np.concatenate(positions))[None],
        boundaries=torch.tensor([0, *np.cumsum(queries)], dtype=torch.int32),
        longest=rounded_up(max(queries)),
        key_places=torch.from_numpy(np.concatenate(places)),
        key_boundaries=torch.tensor([0, *np.cumsum(keys)], dtype=torch.int32),
        longest_keys=rounded_up(max(keys)),
    )
