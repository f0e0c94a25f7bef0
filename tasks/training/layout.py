"""Rules that deal a step's sequences to ranks and cut each rank's into micro-batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.training.batches import (
    MicroBatch,
    TrainedSequence,
    deal_to_ranks,
    make_micro_batch,
    make_packed_batch,
    plan_micro_batches,
    plan_packs,
)
from tasks.training.shared_prefixes import Family, find_families, make_shared_batch

Packing = Literal["packed", "padded", "shared"]
Part = tuple[Family, ...]
"""Content of one micro-batch."""


def part_of(rows: Sequence[int]) -> Part:
    """Return a micro-batch's content that shares nothing."""
    return tuple(Family((row,)) for row in rows)


@dataclass(frozen=True)
class Layout:
    """Rules that cut sequences into micro-batches."""

    token_budget: int
    packing: Packing = "padded"
    multiple: int = 1
    """Packed rows are padded to a multiple of this many tokens."""

    def plans(self, sequences: Sequence[TrainedSequence], ranks: int) -> list[list[Part]]:
        """Return the micro-batches of each rank. The ranks get about equal numbers of tokens."""
        if self.packing == "shared":
            return self._shared_plans(sequences, ranks)
        lengths = [sequence.length for sequence in sequences]
        plan = plan_packs if self.packing == "packed" else plan_micro_batches
        shares = deal_to_ranks(lengths, ranks)
        return [[part_of(rows) for rows in plan(lengths, share, self.token_budget)] for share in shares]

    def _shared_plans(self, sequences: Sequence[TrainedSequence], ranks: int) -> list[list[Part]]:
        # Families stay whole: none is larger than a rank's share.
        share = -(-sum(sequence.length for sequence in sequences) // ranks)
        families = find_families(sequences, range(len(sequences)), min(self.token_budget, share))
        tokens = [family.tokens(sequences) for family in families]
        return [
            [tuple(families[number] for number in numbers) for numbers in plan_packs(tokens, dealt, self.token_budget)]
            for dealt in deal_to_ranks(tokens, ranks)
        ]

    def make(self, sequences: Sequence[TrainedSequence], part: Part) -> MicroBatch:
        """Return one micro-batch."""
        rows = [row for family in part for row in family.rows]
        match self.packing:
            case "shared":
                return make_shared_batch(sequences, part, self.multiple)
            case "packed":
                return make_packed_batch(sequences, rows, self.multiple)
            case "padded":
                return make_micro_batch(sequences, rows)
