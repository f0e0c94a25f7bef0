"""The cache that grows in place holds what a concatenation would."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.rollout.engines.local.kv_cache import ROOM, GrowingLayer

BATCH, HEADS, SIZE = 2, 3, 4


@given(st.lists(st.integers(1, ROOM + 3), min_size=1, max_size=6), st.integers(0, 99))
def test_states_are_appended_in_order(counts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = GrowingLayer()
    parts = [torch.randn(2, BATCH, HEADS, count, SIZE, generator=generator) for count in counts]
    for number, part in enumerate(parts, 1):
        keys, values = layer.update(part[0], part[1])
        expected = torch.cat(parts[:number], dim=3)
        assert torch.equal(keys, expected[0])
        assert torch.equal(values, expected[1])
    assert layer.get_seq_length() == sum(counts)


def test_a_step_within_the_room_copies_nothing() -> None:
    layer = GrowingLayer()
    before, _ = layer.update(torch.zeros(2, BATCH, HEADS, 3, SIZE)[0], torch.zeros(BATCH, HEADS, 3, SIZE))
    after, _ = layer.update(torch.ones(BATCH, HEADS, 1, SIZE), torch.ones(BATCH, HEADS, 1, SIZE))
    assert after.data_ptr() == before.data_ptr()
