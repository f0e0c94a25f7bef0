"""How sequences are dealt to groups of ranks and cut into pieces; what real ranks make of it is in tests/integration/update."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels_eval.errors import InputError
from tasks.training.attention import ALONE, SequenceGroup
from tasks.training.batches import TrainedSequence
from tasks.training.config import EngineConfig, check_heads
from tasks.training.layout import Layout, Packing, part_of

lengths_of_sequences = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 20)), min_size=1, max_size=8)


def sequences_of(lengths: list[tuple[int, int]]) -> list[TrainedSequence]:
    random = np.random.default_rng(0)
    return [
        TrainedSequence(
            random.integers(0, 50, prompt + response).astype(np.int32), np.arange(prompt + response) >= prompt
        )
        for prompt, response in lengths
    ]


@given(lengths=lengths_of_sequences, size=st.sampled_from([2, 3, 4]))
def test_the_pieces_of_a_row_are_the_row(lengths: list[tuple[int, int]], size: int) -> None:
    sequences = sequences_of(lengths)
    batch = Layout(10_000, "packed", multiple=size).make(sequences, part_of(range(len(sequences))))
    parts = [SequenceGroup(size, rank).own_part(batch) for rank in range(size)]
    for name in ("token_ids", "position_ids"):
        whole = torch.cat([getattr(part, name) for part, _ in parts], dim=1)
        assert torch.equal(whole, getattr(batch, name))
    width = batch.token_ids.shape[1] // size
    positions = torch.cat([part.positions + rank * width for rank, (part, _) in enumerate(parts)])
    assert torch.equal(positions, batch.positions)
    assert torch.equal(torch.cat([part.targets for part, _ in parts]), batch.targets)
    numbers = torch.arange(batch.targets.numel())
    assert torch.equal(torch.cat([numbers[own] for _, own in parts]), numbers)
    assert all(part.boundaries is batch.boundaries for part, _ in parts)


@given(
    lengths=lengths_of_sequences,
    groups=st.sampled_from([1, 2, 4]),
    budget=st.sampled_from([16, 40, 200]),
    packing=st.sampled_from(["packed", "padded", "shared"]),
)
def test_groups_get_each_sequence_once_and_equally_many_micro_batches(
    lengths: list[tuple[int, int]], groups: int, budget: int, packing: Packing
) -> None:
    sequences = sequences_of(lengths)
    layout = Layout(budget, packing)
    plans = [SequenceGroup(2, 0, number, groups).plan(layout, sequences) for number in range(groups)]
    rows = [row for plan, _ in plans for part in plan for family in part for row in family.rows]
    assert sorted(rows) == list(range(len(sequences)))
    assert len({len(plan) + fillers for plan, fillers in plans}) == 1
    assert ALONE.plan(layout, sequences) == (layout.plans(sequences, 1)[0], 0)


def test_alone_nothing_is_cut_or_gathered() -> None:
    batch = Layout(100).make(sequences_of([(2, 3)]), part_of([0]))
    part, own = ALONE.own_part(batch)
    assert part is batch
    values = torch.ones(3)
    assert ALONE.gather(values, own, 3) is values


@pytest.mark.parametrize(
    ("heads", "key_value_heads", "size", "words"),
    [
        (6, 3, 4, "found 4, expected a divisor of the model's 6 attention heads"),
        (12, 3, 2, "found 2, expected a divisor or a multiple of the model's 3 key-value heads"),
        (12, 4, 6, "found 6, expected a divisor or a multiple of the model's 4 key-value heads"),
    ],
)
def test_heads_that_cannot_be_dealt_are_refused(heads: int, key_value_heads: int, size: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_heads(heads, key_value_heads, size)


def test_fewer_key_value_heads_than_ranks_are_held_by_several() -> None:
    check_heads(8, 2, 4)
    check_heads(8, 4, 2)
    check_heads(8, 8, 8)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ranks": 3, "context_parallel": 2}, "ranks\n.*a multiple of update.context_parallel = 2"),
        ({"context_parallel": 2}, "ranks\n.*a multiple of update.context_parallel = 2"),
        ({"ranks": 2, "context_parallel": 2, "packing": "padded"}, "update.packing = padded: ranks share packed rows"),
        ({"ranks": 2, "context_parallel": 2, "compile": True}, "update.compile: the exchange"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EngineConfig.model_validate(settings)
    assert EngineConfig(ranks=4, context_parallel=2).context_parallel == 2
