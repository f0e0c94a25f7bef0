"""Fenced blocks of texts, and what is around them."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.fences import fenced


def test_blocks_and_what_is_around_them() -> None:
    found = fenced("Before\n```python\nx = 1\n```\nbetween\n  ````\n```\ny\n```\n`````  \nafter")
    assert found.blocks == ["x = 1\n", "```\ny\n```\n"]
    assert found.around == "Before\nbetween\nafter"


def test_a_block_without_an_end_is_apart() -> None:
    assert fenced("a\n```python\nx = 1\n") == ([], "a\n```python\nx = 1\n", "x = 1\n")
    assert fenced("") == ([], "", None)
    assert fenced("`inline` and ```three```\n").blocks == []


@given(st.lists(st.lists(st.sampled_from(["x", "``", "```", "```py", "é", ""])), min_size=1))
def test_blocks_come_back(contents: list[list[str]]) -> None:
    """Whatever has shorter fences than those around it."""
    blocks = ["".join(f"{line}\n" for line in lines) for lines in contents]
    text = "".join(f"about it\n`````python\n{block}`````\n" for block in blocks)
    assert fenced(text) == (blocks, "about it\n" * len(blocks), None)
