"""Sequences that hold their common beginning once: what is found alike, what is laid out, what each token sees."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.training.batches import TrainedSequence, make_packed_batch
from tasks.training.layout import Layout, part_of
from tasks.training.shared_prefixes import find_families, make_shared_batch

tokens = st.lists(st.integers(0, 2), min_size=1, max_size=8)
drawn = st.lists(st.tuples(tokens, tokens), min_size=1, max_size=8)
"""Prompt and response of each sequence: of three tokens, so that many begin alike."""


def sequences_of(pairs: list[tuple[list[int], list[int]]]) -> list[TrainedSequence]:
    return [
        TrainedSequence(np.array(prompt + response, dtype=np.int32), np.arange(len(prompt + response)) >= len(prompt))
        for prompt, response in pairs
    ]


def test_one_prompt_is_held_once() -> None:
    sequences = sequences_of([([7, 8, 9], [answer] * 4) for answer in range(5)])
    (family,) = find_families(sequences, range(5), 1000)
    assert (family.shared, sorted(family.rows), family.tokens(sequences)) == (3, list(range(5)), 3 + 5 * 4)


def test_later_turns_share_the_statement_of_their_problem() -> None:
    statement = list(range(40))
    sequences = sequences_of([([*statement, 100 + turn, 3, 4], [5, 6]) for turn in range(3)] + [([1, 2], [3])])
    families = find_families(sequences, range(4), 1000)
    assert sorted((family.shared, len(family.rows)) for family in families) == [(0, 1), (40, 3)]


def test_a_short_common_beginning_does_not_break_a_family_with_a_long_one() -> None:
    sequences = sequences_of([([1, *[2] * 30], [answer]) for answer in range(3)] + [([1, 3], [4])])
    assert max(family.shared for family in find_families(sequences, range(4), 1000)) == 31


@given(drawn, st.sampled_from([4, 12, 1000]))
def test_families_hold_each_sequence_once_within_the_budget(
    pairs: list[tuple[list[int], list[int]]], budget: int
) -> None:
    sequences = sequences_of(pairs)
    families = find_families(sequences, range(len(sequences)), budget)
    assert sorted(row for family in families for row in family.rows) == list(range(len(sequences)))
    for family in families:
        assert len(family.rows) == 1 or family.tokens(sequences) <= budget
        first = sequences[family.rows[0]].token_ids[: family.shared]
        for row in family.rows:
            assert np.array_equal(sequences[row].token_ids[: family.shared], first)
            assert not sequences[row].trained[: family.shared].any()
            assert sequences[row].length > family.shared


@given(drawn, st.sampled_from([1, 8]))
def test_each_token_sees_the_tokens_of_its_sequence_before_it_and_itself(
    pairs: list[tuple[list[int], list[int]]], multiple: int
) -> None:
    sequences = sequences_of(pairs)
    families = find_families(sequences, range(len(sequences)), 1000)
    batch = make_shared_batch(sequences, families, multiple)
    assert batch.key_places is not None
    assert batch.key_boundaries is not None
    assert batch.boundaries is not None
    assert batch.token_ids.shape[1] % multiple == 0
    seen: dict[int, list[int]] = {}
    for segment in range(len(batch.boundaries) - 1):
        start, end = batch.boundaries[segment : segment + 2].tolist()
        first, last = batch.key_boundaries[segment : segment + 2].tolist()
        places = batch.key_places[first:last].tolist()
        assert end - start <= batch.longest
        assert last - first <= batch.longest_keys
        for number, place in enumerate(range(start, end)):
            seen[place] = places[: last - first - (end - start) + number + 1]
            assert seen[place][-1] == place
    plain = make_packed_batch(sequences, batch.rows)
    assert torch.equal(batch.targets, plain.targets)
    assert torch.equal(batch.mask, plain.mask)
    position = iter(batch.positions.tolist())
    for row in batch.rows:
        for place in np.flatnonzero(sequences[row].trained):
            before = batch.token_ids[0, seen[next(position)]].numpy()
            assert np.array_equal(before, sequences[row].token_ids[:place])
    assert batch.tokens == sum(family.tokens(sequences) for family in families)


def test_a_step_is_dealt_to_ranks_by_whole_families() -> None:
    sequences = sequences_of([([problem] * 50, [answer] * 10) for problem in range(4) for answer in range(8)])
    plans = Layout(400, "shared").plans(sequences, 2)
    tokens = [sum(family.tokens(sequences) for part in plan for family in part) for plan in plans]
    assert tokens == [2 * (50 + 8 * 10)] * 2
    assert part_of([3])[0].rows == (3,)
