"""No text of a stranger reaches a terminal with what the terminal would obey."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.plain_text import plain_text
from kernels_eval.verdict import Resources, Status, Verdict


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b]52;c;cm0gLXJmIH4=\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x9d52;c;x\x9cafter", "after"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1bPq#0\x1b\\x", "x"),
        ("a\rb\x08c\x00", "abc"),
        ("\u202eabc\u2066", "abc"),
        ("line\n\ttab größe", "line\n\ttab größe"),
        ("x\x1b", "x"),
    ],
)
def test_escapes_are_left_out(text: str, plain: str) -> None:
    assert plain_text(text) == plain
    assert Verdict(status=Status.INCORRECT, error_message=text).error_message == plain
    assert Resources(kernel=text, architecture="cuda:90").kernel == plain


@given(st.text(st.sampled_from("\x1b\x9b\x9d\x07\x9c\\]P[0;m52cab\n\t")))
def test_nothing_that_controls_is_left(text: str) -> None:
    found = plain_text(text)
    assert plain_text(found) == found
    assert all(character in "\n\t" or character.isprintable() for character in found)


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_what_can_be_read_stays(text: str) -> None:
    assert plain_text(text) == text
