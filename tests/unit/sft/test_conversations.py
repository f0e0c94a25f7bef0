"""The order of SFT data: endless, complete in each epoch, a function of the step alone."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.sft.conversations import step_rows


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
