"""SFT data as sequences: what is too long is told. Their order: endless, complete in each epoch, a function of the step alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.models.chat_templates import Message, Role
from tasks.sft.conversations import encode_conversations, step_rows


@given(batch=st.integers(1, 20), conversations=st.integers(1, 30), seed=st.integers(0, 9))
def test_each_epoch_has_each_conversation_once(batch: int, conversations: int, seed: int) -> None:
    stream = [row for step in range(3 * conversations) for row in step_rows(step, batch, conversations, seed)[0]]
    for epoch in range(len(stream) // conversations):
        part = stream[epoch * conversations : (epoch + 1) * conversations]
        assert sorted(part) == list(range(conversations))


@given(batch=st.integers(1, 20), conversations=st.integers(1, 30), step=st.integers(0, 50))
def test_a_batch_is_full_and_says_its_epoch(batch: int, conversations: int, step: int) -> None:
    rows, epoch = step_rows(step, batch, conversations, 0)
    assert len(rows) == batch
    assert epoch == step * batch // conversations


def test_what_is_too_long_is_left_out_counted_and_told(family_tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    conversations = [
        [
            Message(role=Role.USER, content="problem\n"),
            Message(role=Role.ASSISTANT, content="x = 1\n" * length, trained=True),
        ]
        for length in (1, 2, 500)
    ]
    tokenizer = family_tokenizer("qwen2.5")
    whole = encode_conversations(tokenizer, conversations, 10_000, 0.0, 0)
    assert (len(whole.training), whole.dropped, caplog.messages) == (3, 0, [])
    longest = max(sequence.length for sequence in whole.training)
    found = encode_conversations(tokenizer, conversations, longest - 1, 0.0, 0)
    assert (len(found.training), found.dropped) == (2, 1)
    assert caplog.messages == [f"sft.max_tokens: 1 of 3 conversations have more than {longest - 1} and are left out"]
